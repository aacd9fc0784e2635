"""The predicted profile of a model without a mask: all tokens are alike in law."""

from __future__ import annotations

import math

import numpy as np

from explorer.config import Config
from explorer.schemes.data import predicts_text
from explorer.theory import across, backward, forward, parameters
from explorer.theory.forward import Tokens
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import FREQUENT, coincidence, embedding, loss_gradient
from explorer.theory.laws import moments
from explorer.theory.tables import softmax
from explorer.theory.values import Gradients, Rows, Stream


class Unmasked:
    """One config's recursions and what they say."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains = config, gains
        self.table = softmax(config.n_ctx, config.d_head, config.qk_norm, gains.sphere)
        self.first = embedding(config)
        self.steps = forward.run(gains, self.table, config.n_layers, self.first)

    def stream(self) -> Stream:
        """Moments of the sublayers that are covered."""
        return Stream(*(moments([getattr(step, name) for step in self.steps], self.config)
                        for name in ("site", "added")))

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered."""
        n = self.config.n_ctx
        s = np.array([step.capped.s for step in self.steps[::2]])
        law, common = np.array([(step.logits.variance, step.logits.common) for step in self.steps[::2]]).T
        rows = self.table.rows(s)
        own = np.array([1 - step.inside.rho for step in self.steps[::2]])
        std = np.array([step.capped.std for step in self.steps[::2]])
        return Rows(s, np.sqrt(law), np.sqrt(law + common), own, std * math.sqrt(1 - 1 / n),
                    rows.entropy, rows.entropy / math.log(n), rows.largest)

    def gradients(self) -> Gradients:
        """Along the stream and by the weights."""
        last = self.steps[-1].site
        square, overlap, _ = loss_gradient(self.config, last, coincidence(self.config.n_ctx))
        unit = square / (last.q + EPSILON) if self.gains.final else square
        back = backward.run(self.gains, self.table, self.steps, self.first, overlap)
        own = parameters.within(self.config, self.gains, self.steps, back)
        weights = parameters.norms(self.config, self.gains, own, self._across(last, back), unit)
        return Gradients(back.site[:, 0], weights)

    def _across(self, last: Tokens, back: backward.Backward) -> dict[str, Array]:
        """Terms of other sequences in the weights' gradients; none under the linear loss."""
        if not predicts_text(self.config):
            return {}
        tokens = across.forward(self.config, self.gains, self.steps, WAYS)
        _, every, own = loss_gradient(self.config, last._replace(p=tokens.last), FREQUENT)
        return across.totals(self.config, self.gains, tokens, back.alike, (every, own), WAYS)


WAYS = across.Ways(
    square=lambda norm: norm.q + EPSILON,
    pair=lambda x: x,
    kernel=lambda kernel, square, overlap: kernel.pair(square, min(max(overlap / square, 0.0), 1.0))[1],
    attend=lambda x: x,
    collect=lambda x: x,
    mean=lambda x: x,
    each=np.ndarray.tolist,
)
"""All tokens are alike: one number stands for all pairs."""
