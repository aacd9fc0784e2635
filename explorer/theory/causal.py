"""The predicted profile of a model with a causal mask, from its two recursions by position."""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.theory import across, causal_backward, causal_forward, parameters
from explorer.theory.causal_backward import Backward
from explorer.theory.causal_state import State, average, outer
from explorer.theory.forward import Tokens
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import FREQUENT, coincidence, embedding, loss_gradient
from explorer.theory.positions import positions, stacked
from explorer.theory.values import Gradients, Rows, Stream


class Causal:
    """One config's recursions and what they say; see `unmasked.Unmasked` for the same without a mask."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains = config, gains
        self.place, self.first = positions(config.n_ctx), embedding(config)
        self.table = stacked(config.n_ctx, config.d_head, config.qk_norm, gains.sphere)
        self.steps = causal_forward.run(gains, self.place, self.table, config.n_layers, self.first)

    def stream(self) -> Stream:
        """Second moments and overlaps of the sublayers that are covered."""
        sites = [self._means(step.site) for step in self.steps]
        added = [float(self.place.mean @ step.added.q) for step in self.steps]
        return Stream(np.array([q for q, _ in sites]), np.array([p for _, p in sites]), np.array(added))

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        place, steps = self.place, self.steps[::2]
        s = np.array([step.s for step in steps]).reshape(-1, len(place.t))
        laws = [step.logits for step in steps if step.logits]
        std, law, common = (
            np.array([getattr(one, name) for one in laws]).reshape(s.shape) for name in ("std", "variance", "common"))
        rows = self.table.rows(s)
        own = np.array([1 - average(place, step.inside).rho for step in steps])
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
        last = Tokens(*self._means(self.steps[-1].site), 0.0, 0.0)
        square, overlap, _ = loss_gradient(self.config, last, coincidence(self.config.n_ctx))
        back = causal_backward.run(self.gains, self.place, self.table, self.steps, overlap)
        site = np.array([float(self.place.mean @ state.q) for state in back.site])
        own, others = self._within(back), self._across(last, back)
        return Gradients(site, parameters.norms(self.config, self.gains, own, others, square * back.unit))

    def _within(self, back: Backward) -> dict[str, Array]:
        """See `parameters.within`."""
        steps = self.steps
        attended, read = ([step.inside for step in steps[start::2]] for start in (0, 1))
        mixed, hidden = ([step.read for step in steps[start::2]] for start in (0, 1))
        query = self._totals(attended, back.query)
        return {
            "W_Q": query,
            "W_K": self._totals(attended, back.key) if self.gains.residual_attention == "qk" else query,
            "W_O": self._totals(mixed, back.branch[::2]),
            "W_in": self._totals(read, back.hidden),
            "W_out": self._totals(hidden, back.branch[1::2]),
            "alpha": self._totals([step.added for step in steps], back.total),
        }

    def _across(self, last: Tokens, back: Backward) -> dict[str, Array]:
        """See `unmasked.Unmasked`."""
        if self.config.loss == "linear":
            return {}
        ways = self._ways()
        tokens = across.forward(self.config, self.gains, self.steps, ways)
        overlap = float(self.place.mean @ tokens.last @ self.place.mean)
        _, every, own = loss_gradient(self.config, last._replace(p=overlap), FREQUENT)
        query = np.array([outer(part) for part in back.alike])
        # behind a final norm a gradient is larger where the token is shorter
        length = outer(self.steps[-1].site.q + EPSILON) * back.unit
        shape = 1 / length if self.gains.final else np.ones_like(length)
        return across.totals(self.config, self.gains, tokens, query, (every * shape, own * shape), ways)

    def _ways(self) -> across.Ways:
        prefix, suffix, mean = self.place.prefix, self.place.suffix, self.place.mean
        return across.Ways(
            square=lambda norm: outer(norm.q),
            pair=outer,
            kernel=lambda kernel, square, overlap: kernel.overlaps(square, np.clip(overlap / square, 0.0, 1.0))[1],
            attend=lambda x: prefix @ x @ prefix.T,
            collect=lambda x: suffix @ x @ suffix.T,
            mean=lambda x: x @ mean @ mean,
            each=list,
        )

    def _totals(self, xs: list[State], deltas: list[State]) -> Array:
        """Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate, over the tokens of a sequence, for each pair of states."""
        return np.array([self._total(State(x.q * y.q, x.p * y.p)) for x, y in zip(xs, deltas, strict=True)])

    def _total(self, state: State) -> float:
        n, mean = self.config.n_ctx, self.place.mean
        return float(n * (mean @ state.q) + n * n * (mean @ state.p @ mean) - n * (mean @ state.p.diagonal()))

    def _means(self, state: State) -> tuple[float, float]:
        """Second moment and off-diagonal overlap, averaged over the tokens."""
        n, mean = self.config.n_ctx, self.place.mean
        q = float(mean @ state.q)
        return q, (self._total(state) / n - q) / (n - 1)
