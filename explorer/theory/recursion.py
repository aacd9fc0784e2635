"""The two recursions of one config, forward and back, and the statistics that follow from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.theory import across, backward, forward, parameters
from explorer.theory.attention import stack
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import coincidence, embedding, loss_gradient, own_share
from explorer.theory.laws import Moments, Rows
from explorer.theory.positions import bias_slopes, place
from explorer.theory.sink import Sunk, drain
from explorer.theory.sloped import Sloped, sloped
from explorer.theory.tables import tables
from explorer.theory.tokens import State, normalize


class Stream(NamedTuple):
    """Moments of the embedding and over sublayers."""

    embed: Moments
    site: Moments
    added: Moments
    """Moments of the branch's term of the sum."""


class Gradients(NamedTuple):
    """Over sites, and by matrix over layers."""

    site: Array
    """`[2N + 1]`, relative to the last."""
    weights: dict[str, Array]


class Recursion:
    """One config's recursions and their results, arrays over the sublayers or layers that are covered."""

    def __init__(self, config: Config, gains: Gains) -> None:
        self.config, self.gains, self.place = config, gains, place(config, gains.scale)
        n, fall = config.n_ctx, () if self.place.alike else bias_slopes(config)
        self.table = (sloped(n, fall, config.d_head, gains.fixed) if fall else
                      tables(n, not self.place.alike, config.d_head, gains.fixed))
        tokens = embedding(config)
        y = np.full_like(self.place.ratio, tokens.p)
        y[0] = tokens.q
        self.first = State(self.place, y, tokens.v, tokens.w)
        self.steps = forward.run(gains, self.place, self.table, config.n_layers, self.first)

    def stream(self) -> Stream:
        """Moments of the embedding, and of the sublayers that are covered."""
        return Stream(self._moments([self.first]), *(self._moments([getattr(step, name) for step in self.steps])
                                                     for name in ("site", "added")))

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        place = self.place
        layers = [step.attention for step in self.steps if step.attention]
        if not layers:
            return Rows(*np.empty((len(Rows._fields), 0)))
        laws = [layer.logits for layer in layers]
        columns = ((x.s, x.std, x.covariance[0], x.common) for x in laws)
        s, std, variance, common = map(stack, zip(*columns, strict=True))
        q, p = self._means(self._states([step.inside for step in self.steps[::2]]))
        own, turned = self._distinguished(self.gains.keys(q, np.fmin(np.fmax(p / q, 0.0), 1.0)))
        weight = np.where(place.t > 1, place.mean, 0.0)
        weight /= weight.sum()
        s_max, uncapped, total = (part.max(axis=1) for part in (s, np.sqrt(variance), np.sqrt(variance + common)))
        spread = np.sqrt((std * std * (1 - 1 / place.t)) @ weight).reshape(len(s), -1).mean(1)
        if isinstance(self.table, Sloped):
            entropy, largest = np.array([self.table.rows(row).mean(0)[:2] for row in s]).swapaxes(0, 1)
        else:
            averages = self.table.rows(s)
            if self.gains.sink is not None:
                averages = drain(averages, Sunk(*map(stack, zip(*(x.lost for x in layers if x.lost), strict=True))))
            entropy, largest = averages[:2]
        ceiling = np.log(np.maximum(place.t, 2.0))
        return Rows(s_max, uncapped, total, own, turned, spread,
                    entropy @ place.mean, (entropy / ceiling) @ weight, largest @ place.mean)

    def gradients(self) -> Gradients:
        """Along the stream and by the weights, of a stack that is covered to its last layer; not a number where logits
        fall with distance."""
        if isinstance(self.table, Sloped):
            none = np.full(self.config.n_layers, math.nan)
            return Gradients(np.full(2 * len(none) + 1, math.nan), dict.fromkeys(self.config.design.shapes, none))
        place, site, bent, length = self.place, self.steps[-1].site, 1.0, np.ones_like(self.place.mean)
        norm = normalize(site, self.gains, self.config.d_model) if self.gains.final else None
        if norm and self.gains.point:
            site, bent = norm[0], float(1 / (place.mean @ norm[1].square))
        own = own_share(self.config, self.steps)
        square, overlap, *_ = loss_gradient(self.config, site.mean, coincidence(self.config.n_ctx), own)
        back, unit = backward.run(self.gains, place, self.table, self.steps, overlap)
        inside, final_input, added = (self._states([getattr(step, name) for step in self.steps])
                               for name in ("inside", "final_input", "added"))
        within = parameters.within(self.gains, place.total, inside, final_input, added, back)
        if norm:  # after a final norm a gradient is larger where the token is shorter
            length = 1 / (norm[1].square * unit)
        others = across.by_weights(self.config, self.gains, self.steps, place, site.mean, back.alike, length, bent)
        weights = parameters.norms(self.config, self.gains, within, others, square * unit)
        return Gradients(self._means(back.site)[0], weights)

    def _distinguished(self, rho: Array) -> tuple[Array, Array]:
        """Part of the keys, of correlation ρ, that the last row's logits tell apart, and the share of it by turns."""
        keys = self.place.turns.keys[-1]
        own = 1 - keys * rho
        return own, 1 - np.divide(1 - rho, own, out=np.ones_like(own), where=own > 0)

    def _moments(self, states: list[State]) -> Moments:
        """The law of the tokens at some sites.

        The overlaps of fresh coordinates scatter by 1/d by chance; only what is beyond is correlation of coordinates.
        """
        y, n = self._states(states), self.config.n_ctx
        q, p = self._means(y)
        v, w = np.array([(x.v, x.w + x.u) for x in states]).reshape(-1, 2).T
        chance = np.maximum(v - 1 / self.config.d_model, 0.0) * np.clip(1 - p / q, 0.0, 1.0) ** 2
        squares = np.einsum("lij,lij,ij->l", y, y, self.place.total)
        return Moments(q, p, squares / (n * q) ** 2 + (1 - 1 / n) * chance, w, y[:, 0, 0])

    def _states(self, states: list[State]) -> Array:
        """`[site, pair]`: second moments and overlaps of some states."""
        return stack([state.y for state in states] or [self.place.ratio])[:len(states)]

    def _means(self, y: Array) -> Array:
        """`[(q, p), ...]`: second moment and off-diagonal overlap of `[..., pair]`, averaged over the tokens."""
        others = self.place.others
        weights = np.array([self.place.averages[0].reshape(others.shape), others])
        # einsum, for BLAS starts threads where arrays are a little larger
        means: Array = np.einsum("...ij,kij->k...", y, weights)
        return means
