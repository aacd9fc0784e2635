"""The predicted profile of a model with a causal mask, from its two recursions by position."""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.residuals import learned
from explorer.theory import causal_backward, causal_forward, parameters
from explorer.theory.causal_backward import Backward
from explorer.theory.causal_state import State, average
from explorer.theory.forward import Tokens
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import embedding, loss_gradient
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
        last = self._means(self.steps[-1].site)
        square, overlap = loss_gradient(self.config, Tokens(*last, 0.0, 0.0))
        back = causal_backward.run(self.gains, self.place, self.table, self.steps, overlap)
        site = np.array([float(self.place.mean @ state.q) for state in back.site])
        return Gradients(site, self._weights(back, square * back.unit))

    def _weights(self, back: Backward, unit: float) -> dict[str, Array]:
        """Root mean square of ‖∂L/∂W‖ by layer; see `parameters` for the formula."""
        config, gains, steps = self.config, self.gains, self.steps
        attended, read = ([step.inside for step in steps[start::2]] for start in (0, 1))
        mixed, hidden = ([step.read for step in steps[start::2]] for start in (0, 1))
        query, output = self._totals(attended, back.query), self._totals(mixed, back.branch[::2])
        by_key = self._totals(attended, back.key) if gains.residual_attention == "qk" else query
        square = {
            "W_Q": query / gains.q,
            "W_K": by_key / gains.k,
            "W_V": output * gains.o / gains.v,
            "W_O": output,
            "W_in": self._totals(read, back.hidden),
            "W_out": self._totals(hidden, back.branch[1::2]),
        }
        out = parameters.frobenius(config, {name: unit * part for name, part in square.items()})
        if learned(config):
            added = self._totals([step.added for step in steps], back.total) * config.batch_size * config.d_model
            out["alpha"] = np.sqrt((added * unit).reshape(-1, 2).sum(1))
        return out

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
