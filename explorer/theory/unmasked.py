"""The predicted profile of a model without a mask: all tokens are alike in law."""

from __future__ import annotations

import math

import numpy as np

from explorer.config import Config
from explorer.theory import across, backward, forward, parameters
from explorer.theory.gains import Gains
from explorer.theory.inputs import coincidence, embedding, loss_gradient, own_share
from explorer.theory.laws import moments
from explorer.theory.sink import Sunk, drain, sinks
from explorer.theory.tables import softmax
from explorer.theory.tokens import Norm, normalize
from explorer.theory.values import Gradients, Rows, Stream


class Unmasked:
    """One config's recursions and what they say."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains = config, gains
        self.table = softmax(config.n_ctx, config.d_head, gains.fixed)
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
        if self.gains.sink is not None:
            common_seen = np.array([step.capped.common for step in self.steps[::2]])
            read = sinks((n,), self.gains.sink).read(s[:, None], common_seen[:, None])
            rows = drain(rows, Sunk(*(part[:, 0] for part in read)))
        keys = np.array([self.gains.keys(step.inside.q, step.inside.rho) for step in self.steps[::2]])
        own, turned = self.gains.turns.distinguish(keys)
        std = np.array([step.capped.std for step in self.steps[::2]])
        return Rows(s, np.sqrt(law), np.sqrt(law + common), own, turned, std * math.sqrt(1 - 1 / n),
                    rows.entropy, rows.entropy / math.log(n), rows.largest)

    def divided(self, norm: Norm) -> float:
        """Divisor of a norm on overlaps."""
        return 1 / norm.slopes[1] if norm.slopes else norm.q + self.gains.epsilon

    def gradients(self) -> Gradients:
        """Along the stream and by the weights."""
        last, n = self.steps[-1].site, self.config.n_ctx
        norm = Norm()
        if self.gains.final and self.gains.point:
            last, norm = normalize(last, self.gains, self.config.d_model)
        square, overlap, *_ = loss_gradient(self.config, last, coincidence(n), own_share(self.config, self.steps))
        if norm.slopes:
            unit, overlap = square * norm.slopes[0], overlap * norm.slopes[1] / norm.slopes[0]
        else:
            unit = square / (last.q + self.gains.epsilon) if self.gains.final else square
        back = backward.run(self.gains, self.table, self.steps, self.first, overlap)
        inside, read, added = (
            np.stack(forward.columns(self.steps, name), -1) for name in ("inside", "read", "added")
        )
        own = parameters.within(self.gains, np.array([n, n * (n - 1)]), inside, read, added, back)
        # all tokens are alike: one number stands for all pairs
        grid = across.Grid(ONE[0], ONE, ONE, square=self.divided)
        bent = norm.slopes or (1.0, 1.0)
        others = across.by_weights(self.config, self.gains, self.steps, grid, last, back.alike,
                                   ONE[0] * bent[1] / bent[0], bent[1])
        return Gradients(back.site[:, 0], parameters.norms(self.config, self.gains, own, others, unit))


ONE = np.ones((1, 1))

