"""`predict`: the profile that the theory expects of a config, with the same sites and statistics as
a measurement.

What is predicted is the mean over draws of weights and input at finite width, to first order in
1/width; of gradients by weights, the root of the mean square. One seed, one head. Where the theory
does not hold the values are nan, and `notes` says why."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.profile import (
    BRANCHES,
    ROWS,
    STATISTICS,
    STREAM,
    VECTORS,
    Array,
    Key,
    Profile,
    by_site,
)
from explorer.theory import backward, coverage, forward, laws, parameters
from explorer.theory.attention import stack, sunk_by_layer
from explorer.theory.gains import Gains
from explorer.theory.inputs import coincidence, cross_entropy, embedding, loss_gradient, own_share
from explorer.theory.laws import LAWS, ROW_LAWS, Moments, Rows, input_share
from explorer.theory.positions import axis_of, bias_slopes
from explorer.theory.sink import drain
from explorer.theory.tables import Sloped, sloped, tables
from explorer.theory.tokens import State, Tokens, normalize


def predict(config: Config, backward: bool = True, spectra: bool = False) -> Profile:
    """The profile that theory predicts for a config. Accepts every config: values not covered are
    nan, with a note.

    Args:
        config: the design.
        backward: whether gradients are wanted, too; without them it takes half the time.
        spectra: whether spectral norms and stable ranks of the matrices are wanted, too.
    Returns:
        A profile of origin "predicted", values `[1, layer]` and `[1, layer, 1]`.
    Raises:
        TypeError: the config is none.

    Example:
        >>> profile = ex.predict(ex.Config(n_layers=12))
        >>> profile["second_moment", "resid_post"][0, [0, -1]].round(2)  # after layers 1 and 12
        array([ 2.04, 18.81])
    """
    must_be(Config, "config", config)
    start = time.perf_counter()
    with np.errstate(all="ignore"):
        values, notes = _values(config, backward)
    if spectra:
        values |= laws.spectra(config)
    return Profile("predicted", values, config, notes=notes, seconds=time.perf_counter() - start)


def initial_loss(config: Config) -> float | None:
    """The next-token loss that theory expects at initialization, in nats: ln V + s²/2 for V logits
    of variance s² each.

    The mean over draws: see `inputs.log_sum` for large s², and `inputs.cross_entropy` for a tied
    readout.

    Returns:
        None where theory does not cover the second moment of the output, or a function stands in
        the last norm's place.
    Raises:
        TypeError: the config is none.
        ValueError: its loss is another.
    """
    must_be(Config, "config", config)
    design = config.design
    if not design.predicts_text:
        raise ValueError(f"loss must be next_token for a loss over characters; got {config.loss}")
    values = predict(config, backward=False).values
    q = float(values["second_moment", STREAM[-1]][0, -1])
    if not math.isfinite(q) or (design.final_norm and design.point):
        return None
    return cross_entropy(
        config, q, design.token_part * input_share(config, values) if design.tied else 0.0
    )


def _values(config: Config, backward: bool) -> tuple[dict[Key, Array], dict[str, str]]:
    """Every statistic of the vocabulary at every site that the model has, or those of the forward
    pass, and the notes."""
    recursion = Recursion(config)
    rows, covered = recursion.rows(), len(recursion.steps)
    columns = recursion.stream()
    columns |= {
        (name, site): law(rows) for name, law in ROW_LAWS.items() for site in STATISTICS[name].sites
    }
    columns |= recursion.logits()
    if backward and covered == 2 * config.n_layers:
        columns |= recursion.gradients()
    wanted = [row for row in STATISTICS.values() if backward or not row.backward]
    values, lengths = {}, _lengths(config)
    for row in wanted:
        for site, length in lengths.items():
            if site in row.sites:
                full = np.full((length, config.n_ctx) if row.by_position else length, math.nan)
                column = columns.get((row.name, site), full[:0])
                full[: len(column)] = column  # it ends where the recursion did
                values[row.name, site] = full[None, :, None] if row.by_head else full[None]
    values, notes = coverage.apply(config, values, rows, covered)
    lawless = [
        row
        for row in wanted
        if not (
            row.name in LAWS or row.name in ROW_LAWS or row.backward or row.sites == ("logits",)
        )
    ]
    notes |= {row.name: row.unpredicted for row in lawless}
    return values, {row.name: notes[row.name] for row in wanted if row.name in notes}


def _lengths(config: Config) -> dict[str, int]:
    """Number of layers of each site that the model has."""
    design = config.design
    learned = zip(
        VECTORS, (design.sink.std, design.alpha_shape is not None, design.mix_shapes), strict=True
    )
    absent = (
        *(() if design.attends else ("attn_scores", "pattern", "attn_out")),
        *(() if design.predicts_text else ("logits",)),
    )
    sites = [
        *STREAM,
        *BRANCHES,
        *ROWS,
        "logits",
        *design.shapes,
        *(name for name, there in learned if there),
    ]
    return {site: 1 if site == "embed" else config.n_layers for site in sites if site not in absent}


class Recursion:
    """One config's recursions, forward and back, and the statistics that follow from them, by
    sublayer or layer."""

    def __init__(self, config: Config) -> None:
        self.config, self.gains = config, Gains(config)
        gains, self.axis = self.gains, axis_of(config, self.gains.scale)
        n, fall = config.n_ctx, () if self.axis.unmasked else bias_slopes(config)
        self.table = (
            sloped(n, fall, config.d_head, gains.fixed)
            if fall
            else tables(n, not self.axis.unmasked, config.d_head, gains.fixed)
        )
        tokens = embedding(config)
        y = np.full_like(self.axis.ratio, tokens.p)
        y[0] = tokens.q
        self.first = State(self.axis, y, tokens.v, tokens.w)
        self.steps = forward.run(gains, self.axis, self.table, config.n_layers, self.first)

    def stream(self) -> dict[Key, Array]:
        """Statistics of the embedding, and of the sublayers and branches that are covered."""
        steps = self.steps
        every = self._moments(
            np.concatenate([self.first.y[None], steps.site, steps.added]),
            [self.first.mean, *(step.site for step in steps), *(step.added for step in steps)],
        )
        end = 1 + len(steps)
        parts = (
            slice(1),
            slice(1, end, 2),
            slice(2, end, 2),
            slice(end, None, 2),
            slice(end + 1, None, 2),
        )
        values: dict[Key, Array] = {}
        for name, law in LAWS.items():  # each of all sites in one stroke
            sites = zip(
                (*STREAM, *BRANCHES), map(law(self.config, every).__getitem__, parts), strict=True
            )
            values |= {
                (name, site): column for site, column in sites if site in STATISTICS[name].sites
            }
        return values

    def logits(self) -> dict[Key, Array]:
        """Statistics of the readout's logits of the stream after each layer that is covered; none
        without a readout."""
        design, steps = self.config.design, self.steps
        if not design.predicts_text or len(steps) < 2:
            return {}
        kept = np.array(np.cumprod([step.kept for step in steps])[1::2], np.float64)
        return laws.output_logits(
            self.config,
            self._moments(steps.site[1::2], [step.site for step in steps[1::2]]),
            design.tied * design.token_part * kept,
        )

    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        axis = self.axis
        layers = [step.attention for step in self.steps if step.attention]
        if not layers:
            return Rows(
                *[np.empty(0)] * (len(Rows._fields) - 2) + [np.empty((0, self.config.n_ctx))] * 2
            )
        laws = [layer.logits for layer in layers]
        columns = ((x.s, x.std, x.covariance[0], x.common) for x in laws)
        s, std, variance, common = map(stack, zip(*columns, strict=True))
        tokens = self.steps.inside[::2]
        (q, p), lengths = self._means(tokens), tokens[:, 0]
        # the part of the keys that the last row's logits tell apart, and the share of it by turns
        rho = self.gains.keys(q, np.fmin(np.fmax(p / q, 0.0), 1.0))
        own = 1 - axis.turns.keys[-1] * rho
        turned = 1 - np.divide(1 - rho, own, out=np.ones_like(own), where=own > 0)
        weight = np.where(axis.visible > 1, axis.weights, 0.0)
        weight /= weight.sum()
        s_max, uncapped, total = (
            part.max(axis=1) for part in (s, np.sqrt(variance), np.sqrt(variance + common))
        )
        spread = np.sqrt((std * std * (1 - 1 / axis.visible)) @ weight).reshape(len(s), -1).mean(1)
        if isinstance(self.table, Sloped):
            entropy, largest = np.array([self.table.rows(row).mean(0)[:2] for row in s]).swapaxes(
                0, 1
            )
            # of each key the mean over heads and queries, E W_t(j) of a row (our derivation, from
            # `Sloped`)
            received = np.array([self.table.weights(row).mean((0, 1)) for row in s])
        else:
            averages, kept = self.table.rows(s), np.ones((len(s), len(axis.visible)))
            if self.gains.sink is not None:
                lost = sunk_by_layer(layers)
                averages, kept = drain(averages, lost), lost.mass
            entropy, largest = averages[:2]
            received = axis.received(kept)
        ceiling = np.log(np.maximum(axis.visible, 2.0))
        return Rows(
            s_max,
            uncapped,
            total,
            own,
            turned,
            spread,
            entropy @ axis.weights,
            (entropy / ceiling) @ weight,
            largest @ axis.weights,
            s_max**2 / 2 * np.ptp(lengths, 1) / lengths.max(1),
            axis.at_tokens(entropy),
            received,
        )

    def gradients(self) -> dict[Key, Array]:
        """Gradients along the stream and by the weights, of a stack that is covered to its last
        layer; none where logits fall with distance."""
        if isinstance(self.table, Sloped):
            return {}
        config, gains, axis, steps = self.config, self.gains, self.axis, self.steps
        site, bent, length = steps.last, 1.0, np.ones_like(axis.weights)
        norm = normalize(site, gains, config.d_model) if gains.final else None
        if norm and gains.point:
            site, bent = norm[0], float(1 / (axis.weights @ norm[1].square))
        own = own_share(config, steps)
        square, overlap, *_ = loss_gradient(config, site.mean, coincidence(config.n_ctx), own)
        back, unit = backward.run(gains, axis, self.table, steps, overlap)
        within = parameters.within(gains, axis, steps, back)
        if norm:  # after a final norm a gradient is larger where the token is shorter
            length = 1 / (norm[1].square * unit)
        across = parameters.across(config, gains, axis, steps, site.mean, back.alike, length, bent)
        weights = parameters.norms(config, gains, within, across, square * unit)
        stream = by_site(self._means(back.site)[0])
        return {
            **{("activation_gradient", at): column for at, column in stream.items()},
            **{("parameter_gradient", name): column for name, column in weights.items()},
        }

    def _moments(self, y: Array, laws: Sequence[Tokens]) -> Moments:
        """The law of the tokens at some sites, `[site, pair]`.

        The overlaps of fresh coordinates scatter by 1/d by chance; only what is beyond is
        correlation of coordinates."""
        n, (q, p) = self.config.n_ctx, self._means(y)
        v, w = np.array([(x.v, x.w + x.u) for x in laws]).T
        chance = np.maximum(v - 1 / self.config.d_model, 0.0) * np.clip(1 - p / q, 0.0, 1.0) ** 2
        squares = np.einsum("lij,lij,ij->l", y, y, self.axis.pair_sum)
        tokens, others = map(self.axis.at_tokens, (y[:, 0], self.axis.with_others(y)))
        return Moments(
            q, p, squares / (n * q) ** 2 + (1 - 1 / n) * chance, w, y[:, 0, 0], tokens, others
        )

    def _means(self, y: Array) -> Array:
        """`[(q, p), ...]`: second moment and off-diagonal overlap of `[..., pair]`, averaged over
        the tokens."""
        others = self.axis.pair_mean
        weights = np.array([self.axis.averages[0].reshape(others.shape), others])
        # einsum, for BLAS starts threads where arrays are a little larger
        return np.asarray(np.einsum("...ij,kij->k...", y, weights))
