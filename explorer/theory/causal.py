"""The predicted profile of a model with a causal mask, from its two recursions by position."""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.schemes.data import predicts_text
from explorer.theory import across, causal_backward, causal_forward, parameters
from explorer.theory.causal_backward import Backward
from explorer.theory.forward import Tokens
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import FREQUENT, coincidence, embedding, loss_gradient
from explorer.theory.positions import positions, stacked
from explorer.theory.values import Gradients, Moments, Rows, Stream


class Causal:
    """One config's recursions and what they say; see `unmasked.Unmasked` for the same without a mask."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains = config, gains
        self.place, self.first = positions(config.n_ctx), embedding(config)
        self.table = stacked(config.n_ctx, config.d_head, config.qk_norm, gains.sphere)
        self.steps = causal_forward.run(gains, self.place, self.table, config.n_layers, self.first)

    def stream(self) -> Stream:
        """Moments of the sublayers that are covered."""
        return Stream(self._moments("site"), self._moments("added"))

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        place, count = self.place, len(self.place.t)
        laws = [step.logits for step in self.steps if step.logits]
        s, std, law, common = (
            np.concatenate(column).reshape(-1, count)
            for column in zip(*((one.s, one.std, one.covariance[:count], one.common) for one in laws), strict=True)
        ) if laws else np.empty((4, 0, count))
        rows = self.table.rows(s)
        own = np.array([1 - step.inside.mean.rho for step in self.steps[::2]])
        seen = place.mean * self.config.n_ctx
        seen = np.where(place.t > 1, seen, 0.0) / (self.config.n_ctx - 1)
        ceiling = np.log(np.maximum(place.t, 2.0))
        s_max, uncapped, total = (part.max(axis=1, initial=0.0) for part in (s, np.sqrt(law), np.sqrt(law + common)))
        return Rows(
            s_max, uncapped, total, own, np.sqrt((std * std * (1 - 1 / place.t)) @ seen),
            rows[..., 0] @ place.mean, (rows[..., 0] / ceiling) @ seen, rows[..., 1] @ place.mean,
        )

    def gradients(self) -> Gradients:
        """Along the stream and by the weights."""
        q, p = self._means(self.steps[-1].site.y).tolist()
        last = Tokens(q, p, 0.0, 0.0)
        square, overlap, _ = loss_gradient(self.config, last, coincidence(self.config.n_ctx))
        back = causal_backward.run(self.gains, self.place, self.table, self.steps, overlap)
        own, others = self._within(back), self._across(last, back)
        weights = parameters.norms(self.config, self.gains, own, others, square * back.unit)
        return Gradients(self._mean(back.site), weights)

    def _moments(self, name: str) -> Moments:
        """See `laws.moments`; the correlations also differ by position."""
        y, n = self._stack(name), self.config.n_ctx
        q, p = self._means(y).T
        v, w = np.array([(getattr(step, name).v, getattr(step, name).w) for step in self.steps]).reshape(-1, 2).T
        chance = np.maximum(v - 1 / self.config.d_model, 0.0) * np.clip(1 - p / q, 0.0, 1.0) ** 2
        return Moments(q, p, self._total(y, y) / (n * q) ** 2 + (1 - 1 / n) * chance, w, y[:, 0])

    def _stack(self, name: str) -> Array:
        """`[sublayer, pair]`: second moments and overlaps of one of the steps' states."""
        return np.concatenate([getattr(step, name).y for step in self.steps] or [[]]).reshape(-1, len(self.place.ratio))

    def _within(self, back: Backward) -> dict[str, Array]:
        """See `parameters.within`."""
        inside, read = self._stack("inside"), self._stack("read")
        return {
            "W_Q": self._total(inside[::2], back.query),
            "W_K": self._total(inside[::2], back.key),
            "W_O": self._total(read[::2], back.branch[::2]),
            "W_in": self._total(inside[1::2], back.hidden),
            "W_out": self._total(read[1::2], back.branch[1::2]),
            "alpha": self._total(self._stack("added"), back.total),
        }

    def _across(self, last: Tokens, back: Backward) -> dict[str, Array]:
        """See `unmasked.Unmasked`."""
        if not predicts_text(self.config):
            return {}
        ways = self._ways()
        tokens = across.forward(self.config, self.gains, self.steps, ways)
        overlap = float(self._pairs @ tokens.last)
        _, every, own = loss_gradient(self.config, last._replace(p=overlap), FREQUENT)
        # after a final norm a gradient is larger where the token is shorter
        length = self._lift(self.steps[-1].site.q + EPSILON) * back.unit
        shape = 1 / length if self.gains.final else np.ones_like(length)
        query = self._lift(back.alike)
        return across.totals(self.config, self.gains, tokens, query, (every * shape, own * shape), ways)

    @property
    def _pairs(self) -> Array:
        """Average over pairs of positions; tokens of two sequences are always different."""
        return self.place.averages[1, len(self.place.t):]

    def _lift(self, x: Array) -> Array:
        return self.place.lift(x)[..., len(self.place.t):]

    def _ways(self) -> across.Ways:
        place, count = self.place, len(self.place.t)
        attend, collect = place.attend[count:, count:].T, self.place.between.T
        return across.Ways(
            square=lambda norm: self._lift(norm.q),
            pair=self._lift,
            kernel=lambda kernel, square, overlap: kernel.overlaps(square, np.clip(overlap / square, 0.0, 1.0))[1],
            attend=lambda x: x @ attend,
            collect=lambda x: x @ collect,
            mean=lambda x: x @ self._pairs,
            each=list,
        )

    def _means(self, y: Array) -> Array:
        """`[..., (q, p)]`: second moment and off-diagonal overlap, averaged over the tokens."""
        return np.stack([self._mean(y), np.einsum("...p,p->...", y, self.place.others)], -1)

    def _mean(self, y: Array) -> Array:
        """Mean second moment of `[..., pair]`; einsum, for BLAS starts threads where arrays are a little larger."""
        mean: Array = np.einsum("...p,p->...", y, self.place.averages[0])
        return mean

    def _total(self, x: Array, y: Array) -> Array:
        """Σ over the pairs of tokens of a sequence of the product of `[..., pair]`."""
        total: Array = np.einsum("...p,...p,p->...", x, y, self.place.total)
        return total
