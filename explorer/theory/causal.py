"""The predicted profile of a model with a causal mask, from its two recursions by position."""

from __future__ import annotations

import math

import numpy as np

from explorer.config import Config
from explorer.schemes.attention import row_factors
from explorer.schemes.position import slopes
from explorer.schemes.scale import shapes
from explorer.theory import across, backward, causal_backward, causal_forward, causal_tokens, forward, parameters
from explorer.theory.causal_backward import stack
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import coincidence, embedding, loss_gradient, own_share
from explorer.theory.laws import moments
from explorer.theory.positions import positions, stacked
from explorer.theory.sink import Sunk, drain, sinks
from explorer.theory.sloped import LONGEST, Sloped, sloped
from explorer.theory.tables import softmax
from explorer.theory.tokens import Norm, normalize
from explorer.theory.turns import turns
from explorer.theory.values import Gradients, Moments, Rows, Stream

# The predicted profile of a model without a mask: all tokens are alike in law.


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
            averages = sinks((n,), self.gains.sink).read(s[:, None], common_seen[:, None])
            rows = drain(rows, Sunk(*(part[:, 0] for part in averages)))
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


class Causal:
    """One config's recursions and what they say; see `unmasked.Unmasked` for the same without a mask."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains = config, gains
        fall = slopes(config) if config.n_ctx <= LONGEST else ()
        place = positions(config.n_ctx, whole=bool(fall))
        sharp = place.lift(np.square(row_factors(config, config.n_ctx))[place.t.astype(int) - 1])
        self.place, self.first = place._replace(turns=turns(config, place), sharp=sharp), embedding(config)
        self.table = (sloped(config.n_ctx, fall, config.d_head, gains.fixed) if fall else
                      stacked(config.n_ctx, config.d_head, gains.fixed))
        self.steps = causal_forward.run(gains, self.place, self.table, config.n_layers, self.first)

    def stream(self) -> Stream:
        """Moments of the sublayers that are covered."""
        return Stream(self._moments("site"), self._moments("added"))

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        place = self.place
        layers = [step.attention for step in self.steps if step.attention]
        if not layers:
            return Rows(*np.empty((len(Rows._fields), 0)))
        laws = [layer.logits for layer in layers]
        s, std, law, common = map(stack, zip(*((x.s, x.std, x.covariance[0], x.common) for x in laws), strict=True))
        rows = stack([layer.reading.rows for layer in layers])
        means = [step.inside.mean for step in self.steps[::2]]
        own, turned = self.gains.turns.distinguish(np.array([self.gains.keys(x.q, x.rho) for x in means]))
        weight = np.where(place.t > 1, place.mean * self.config.n_ctx, 0.0) / (self.config.n_ctx - 1)
        ceiling = np.log(np.maximum(place.t, 2.0))
        s_max, uncapped, total = (part.max(axis=1) for part in (s, np.sqrt(law), np.sqrt(law + common)))
        spread = np.sqrt((std * std * (1 - 1 / place.t)) @ weight)
        if spread.ndim > 1:
            spread = spread.mean(1)
        return Rows(
            s_max, uncapped, total, own, turned, spread,
            rows[:, 0] @ place.mean, (rows[:, 0] / ceiling) @ weight, rows[:, 1] @ place.mean,
        )

    def gradients(self) -> Gradients:
        """Along the stream and by the weights; not a number where logits fall with distance."""
        if isinstance(self.table, Sloped):
            none = np.full(self.config.n_layers, math.nan)
            return Gradients(np.full(2 * len(none) + 1, math.nan), dict.fromkeys(shapes(self.config), none))
        site, bent, length = self.steps[-1].site, 1.0, np.ones_like(self.place.mean)
        norm = causal_tokens.normalize(site, self.gains, self.config.d_model) if self.gains.final else None
        if norm and self.gains.point:
            site, bent = norm[0], float(1 / (self.place.mean @ norm[1].square))
        last = site.mean
        own = own_share(self.config, self.steps)
        square, overlap, *_ = loss_gradient(self.config, last, coincidence(self.config.n_ctx), own)
        back, unit = causal_backward.run(self.gains, self.place, self.table, self.steps, overlap)
        inside, read, added = (self._states(name) for name in ("inside", "read", "added"))
        within = parameters.within(self.gains, self.place.total, inside, read, added, back)
        # after a final norm a gradient is larger where the token is shorter
        place = self.place
        if norm:
            length = 1 / (norm[1].square * unit)
        grid = across.Grid(place.mean, place.prefix, place.suffix, square=lambda norm: norm.square, mixes=True)
        others = across.by_weights(self.config, self.gains, self.steps, grid, last, back.alike, length, bent)
        weights = parameters.norms(self.config, self.gains, within, others, square * unit)
        return Gradients(self._means(back.site)[0], weights)

    def _moments(self, name: str) -> Moments:
        """See `laws.moments`; the correlations also differ by position."""
        y, n = self._states(name), self.config.n_ctx
        q, p = self._means(y)
        v, w = np.array([(getattr(step, name).v, getattr(step, name).w) for step in self.steps]).reshape(-1, 2).T
        chance = np.maximum(v - 1 / self.config.d_model, 0.0) * np.clip(1 - p / q, 0.0, 1.0) ** 2
        squares = np.einsum("lij,lij,ij->l", y, y, self.place.total)
        return Moments(q, p, squares / (n * q) ** 2 + (1 - 1 / n) * chance, w, y[:, 0, 0])

    def _states(self, name: str) -> Array:
        """`[sublayer, pair]`: second moments and overlaps of one of the steps' states."""
        return stack([getattr(step, name).y for step in self.steps] or [self.place.ratio])[:len(self.steps)]

    def _means(self, y: Array) -> Array:
        """`[(q, p), ...]`: second moment and off-diagonal overlap of `[..., pair]`, averaged over the tokens."""
        others = self.place.others
        weights = np.array([self.place.averages[0].reshape(others.shape), others])
        # einsum, for BLAS starts threads where arrays are a little larger
        means: Array = np.einsum("...ij,kij->k...", y, weights)
        return means
