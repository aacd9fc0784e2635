"""`predict`: the profile that the theory expects of a config, with the same sites and statistics as
a measurement.

What is predicted is the mean over draws of weights and input at finite width, to first order in
1/width. Second moments and gradients scatter from draw to draw by factors: of these it is the
typical draw, and `scatter` says how far others are from it. One seed, one head. Where the theory
does not hold the values are nan, and `notes` says why."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma

from explorer.config import Config
from explorer.design import Design
from explorer.display import must_be
from explorer.profile import Profile, by_site
from explorer.sites import MATRICES, STREAM, TAPS, VECTORS, sites_of
from explorer.theory import backward, coverage, forward, laws, parameters
from explorer.theory.attention import Attention, by_layer, stack
from explorer.theory.gains import Gains, keeps_unit
from explorer.theory.gaussian import tabulated
from explorer.theory.inputs import coincidence, cross_entropy, embedding, loss_gradient, own_share
from explorer.theory.laws import LAWS, ROW_LAWS, Moments, Rows, input_share
from explorer.theory.positions import axis_of, bias_slopes
from explorer.theory.scatter import scatter
from explorer.theory.several import joined
from explorer.theory.sink import drain
from explorer.theory.tables import Sloped, Tables, sloped, tables
from explorer.theory.tokens import Norm, State, Tokens, normalize, ratio
from explorer.translation import Note
from explorer.vocabulary import STATISTICS, Array, Key, Statistic

WIDEST = 100.0
"""Variance of the logarithm beyond which a typical draw says nothing of another one."""
WIDEST_OF_COPIES = 0.25
"""Of copies of a layer: V by the law of independent layers, up to which the mean over draws stands
for the typical draw. Copies scatter by more (Post-LN, d 64 to 512, 6 to 48 layers, 12 to 32 seeds):
the line was within 5 % of the typical draw at .32, and 1.7 times as high at .37."""


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
        array([ 2.04, 18.76])
    """
    must_be(Config, "config", config)
    return _side_by_side([config], backward, spectra)[0]


def predict_all(configs: Sequence[Config], backward: bool = True) -> Iterator[tuple[int, Profile]]:
    """`predict` of many designs, each with its index, in the order in which they are found.

    It is quicker where designs differ in numbers alone, as a map's do: their recursions run side by
    side."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, config in enumerate(configs):
        groups[structure(config) or index].append(index)
    for group in groups.values():
        for start in range(0, len(group), MOST):
            indices = group[start : start + MOST]
            several = _side_by_side([configs[index] for index in indices], backward)
            yield from zip(indices, several, strict=True)


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
    own = design.token_part * input_share(config, values) if design.tied else 0.0
    return cross_entropy(config, q, own)


MOST = 128
"""Designs side by side at most: more arrays than theirs do not fit into a processor's cache."""
VARIED = (
    "d_model",
    "mlp_ratio",
    "batch_size",
    "init_variance",
    "attention_variance",
    "mlp_variance",
    "bias_variance",
    "norm_epsilon",
    "norm_alpha",
    "alpha",
    "ssmax_scale",
    "qk_gain",
    "input_second_moment",
    "input_correlation",
    "base_depth",
    "n_seeds",
    "seed",
)
"""Fields in which designs side by side may differ."""


def structure(config: Config) -> Hashable:
    """A key that designs have in common where their recursions take the same steps; None of a
    design that has to be predicted alone.

    Alone are designs with tables of their own (sinks, slopes, soft caps), with sums over other
    layers or other sequences (copied layers, text with its loss), and with gates."""
    design = config.design
    if (
        design.copied
        or design.gates
        or design.slopes
        or design.predicts_text
        or design.sink.logit is not None
        or config.logit_cap
    ):
        return None
    fields = tuple(value for name, value in config if name not in VARIED)
    # numbers that decide which steps there are
    biased, sphere = config.bias_variance > 0, design.normalizes_heads and config.d_head
    fixed = tabulated(config.activation) and keeps_unit(config)
    return (*fields, biased, sphere, config.d_head == 1, fixed)


def _side_by_side(
    configs: Sequence[Config], backward: bool, spectra: bool = False
) -> list[Profile]:
    """The profiles of one design, or of several of one `structure`."""
    start = time.perf_counter()
    wanted = [row for row in STATISTICS.values() if backward or not row.backward]
    unpredicted = {row.name: row.unpredicted for row in wanted if not _has_law(row)}
    profiles = []
    with np.errstate(all="ignore"):
        recursion = Recursion(*configs)
        back = recursion.back() if backward else None
        values, variances = _values(recursion, back, wanted), recursion.variances(back)
        # the time of what was done for all, then of each design
        in_common = (time.perf_counter() - start) / len(configs)
        for index, config in enumerate(configs):
            start = time.perf_counter()
            covered = recursion.covered[index]
            # what is covered in part has shorter arrays, which the others would not fit
            if len(configs) > 1 and covered < 2 * config.n_layers:
                profiles.append(predict(config, backward))
                continue
            own = {key: array[index : index + 1] for key, array in values.items()}
            own, notes = coverage.apply(config, own, recursion.rows_of(index), covered)
            of_design = {key: column[:, index] for key, column in variances.items()}
            if config.design.copied:  # draws scatter more, by no law that is known: no band
                _end_where_copies_scatter(config.design, own, notes, of_design)
                of_design = {}
            spread = _typical(config, own, notes, of_design)
            notes |= unpredicted
            notes = {row.name: notes[row.name] for row in wanted if row.name in notes}
            if spectra:
                own |= laws.spectra(config)
            seconds = in_common + time.perf_counter() - start
            profiles.append(
                Profile("predicted", own, config, notes=notes, scatter=spread, seconds=seconds)
            )
    return profiles


def _has_law(row: Statistic) -> bool:
    """Whether a statistic is predicted: by a row of laws, or by the recursion without one."""
    of_recursion = row.backward or row.sites == ("logits",)
    return of_recursion or row.name in LAWS or row.name in ROW_LAWS


def _values(
    recursion: Recursion, back: Back | None, wanted: Sequence[Statistic]
) -> dict[Key, Array]:
    """Some statistics at every site that the model has: `[design, layer]`, `[design, layer, 1]` by
    head or `[design, layer, token]` by position; nan where the recursion did not come."""
    columns, values = recursion.columns(back), {}
    config, designs = recursion.configs[0], len(recursion.configs)
    lengths = _lengths(config)
    for row in wanted:
        by_head = row.by_head
        for site, length in lengths.items():
            if site not in row.sites:
                continue
            shape = (length, config.n_ctx) if row.by_position else (length,)
            full = np.full((designs, *shape), math.nan)
            column = columns.get((row.name, site))
            if column is not None:
                full[:, : len(column)] = np.moveaxis(column, -1, 0) if designs > 1 else column
            values[row.name, site] = full[..., None] if by_head else full
    return values


def _typical(
    config: Config,
    values: dict[Key, Array],
    notes: dict[str, str],
    variances: Mapping[Key, Array],
) -> dict[Key, Array]:
    """Replaces means over draws by typical draws, and returns how far draws are from them.

    Of a number whose logarithm is normal, of variance V, the typical draw is the mean · e^(−V/2).
    Of the root it is the root mean square · e^(−V/4), and the root's logarithm has the variance
    V/4.

    Args:
        values: replaced in place; withdrawn, with a note, where V is above `WIDEST`.
        notes: by statistic.
        variances: V by statistic and site, `[layer]`, of the layers that are covered.
    Returns:
        `Profile.scatter`.
    """
    spread = {}
    for key, variance in variances.items():
        if key not in values:
            continue
        value, row = values[key], STATISTICS[key[0]]
        wide = variance > WIDEST
        if wide.any():
            reason = Note(
                "not covered: draws scatter by more than e^{power}", power=f"{WIDEST**0.5:.0f}"
            )
            _note_withdrawal(notes, row.name, reason)
        covered = np.full(value.shape[1], math.nan)  # also where the recursion did not come
        covered[: len(variance)] = np.where(wide, math.nan, variance)
        factor = np.exp(-row.power / 2 * covered)
        values[key] = value * (factor[:, None] if value.ndim > 2 else factor)
        # windows of text have more scatter of matrices' gradients, which is not known
        if row.band and not (key[1] in MATRICES and config.design.predicts_text):
            spread[key] = row.power * np.sqrt(covered)[None]
    for name, count in _few_numbers(config).items():
        key = "parameter_gradient", name
        if key in values:
            # ln of the mean square of k Gaussian numbers is ψ(k/2) − ln(k/2) in the mean
            logarithm = digamma(count / 2) - math.log(count / 2)
            values[key] = values[key] * math.exp(logarithm / 2)
    return spread


def _end_where_copies_scatter(
    design: Design,
    values: Mapping[Key, Array],
    notes: dict[str, str],
    variances: Mapping[Key, Array],
) -> None:
    """Withdraws gradients through copies, which are means over draws, where those are far from the
    typical draw.

    Args:
        values: `[1, layer]` by statistic and site, changed in place.
        notes: by statistic.
        variances: of the logarithm over draws, `[layer]`, of the layers that are covered.
    """
    for key, variance in variances.items():
        name, site = key
        if not STATISTICS[name].backward or key not in values:
            continue
        far = variance > WIDEST_OF_COPIES
        if design.shared and site in MATRICES:  # the sum over layers is no better than its terms
            by_copy = far.reshape(-1, design.unique)
            far = np.tile(by_copy.any(0), len(by_copy))
        if not far.any():
            continue
        covered = values[key][:, : len(far)]
        covered[:, far] = math.nan
        _note_withdrawal(
            notes, name, Note("not covered where draws of copies scatter far from their mean")
        )


def _note_withdrawal(notes: dict[str, str], statistic: str, reason: str) -> None:
    """Puts a reason before what is said of a statistic, unless that has one."""
    said = notes.get(statistic, "")
    if "not covered" not in said:
        notes[statistic] = Note.joined(filter(None, [reason, said]))


def _few_numbers(config: Config) -> dict[str, int]:
    """Learned vectors whose gradient has so few numbers in each layer that their typical norm is
    below its root mean square, and how many."""
    design, few = config.design, {}
    if design.sink.std:
        few["sink"] = config.n_heads
    if design.alpha_shape is not None:
        few["alpha"] = math.prod(design.alpha_shape)
    return few


def _lengths(config: Config) -> dict[str, int]:
    """Number of layers of each site, matrix and vector that the model has and theory speaks of."""
    design, n_layers = config.design, config.n_layers
    sites = [TAPS[name] for name in sites_of("stream", "branch", "attention", "readout")]
    vectors = zip(
        VECTORS, (design.sink.std, design.alpha_shape is not None, design.mix_shapes), strict=True
    )
    return {
        **{site.name: site.layers(n_layers) for site in sites if site.there(design)},
        **dict.fromkeys(design.shapes, n_layers),
        **{name: n_layers for name, learned in vectors if learned},
    }


class Back(NamedTuple):
    """The way back through a stack."""

    gradients: backward.Backward
    output: State
    """The tokens that the loss sees, before a final norm that divides."""
    norm: Norm | None
    """The final norm."""
    square: Any
    """Mean square of ∂L/∂x at the output."""
    unit: Any
    """Mean square at the last layer, over `square`."""
    overlap: Any
    """Overlap of two tokens' gradients at the output, over `square`."""


class Recursion:
    """The recursions, forward and back, of one design or of several of one `structure`, and the
    statistics that follow from them, by sublayer or layer.

    Of several designs the arrays have a last axis of designs, see `several`."""

    def __init__(self, *configs: Config) -> None:
        self.configs = configs
        each = [Gains(config) for config in configs]
        self.gains = gains = joined(each)
        axis, *others = map(axis_of, configs, [design.scale for design in each])
        self.axis = axis.side_by_side(others) if others else axis
        self.table: Tables | Sloped = self._table()
        tokens = joined([embedding(config) for config in configs])
        y = np.full_like(self.axis.ones, tokens.p)
        y[0] = tokens.q
        self.first = State(self.axis, y, tokens.v, tokens.w)
        """The embedding."""
        self.steps = forward.run(gains, self.axis, self.table, configs[0].n_layers, self.first)
        """The sublayers that are covered, of any design."""
        self.covered: list[int] = np.ravel(self.steps.covered).tolist()
        """Number of sublayers of each design, before a signal leaves float32's range."""

    def _table(self) -> Tables | Sloped:
        """The softmax statistics of all designs."""
        config, axis = self.configs[0], self.axis
        slopes = () if axis.unmasked else bias_slopes(config)
        if slopes:
            return sloped(config.n_ctx, slopes, config.d_head, self.gains.fixed)
        each = [
            tables(config.n_ctx, not axis.unmasked, config.d_head, self.gains.fixed)
            for config in self.configs
        ]
        return Tables.side_by_side(axis, each) if len(each) > 1 else each[0]

    def rows_of(self, index: int) -> Rows:
        """Softmax statistics of one design."""
        return Rows(*(x[..., index] for x in self.rows)) if len(self.configs) > 1 else self.rows

    def columns(self, back: Back | None) -> dict[Key, Array]:
        """Statistics of the layers that any design reaches, `[layer]` or `[layer, token]`, with a
        last axis of designs where there are several; no gradients without `back`."""
        columns = self.stream() | self.logits()
        for name, law in ROW_LAWS.items():
            columns |= {(name, site): law(self.rows) for site in STATISTICS[name].sites}
        return columns | self.gradients(back) if back else columns

    def stream(self) -> dict[Key, Array]:
        """Statistics of the embedding, and of the sublayers and branches that are covered:
        `[layer]` or `[layer, token]`."""
        steps = self.steps
        moments = self._moments(
            np.concatenate([self.first.y[None], steps.site, steps.added]),
            [self.first.mean, *(step.site for step in steps), *(step.added for step in steps)],
        )
        # the embedding, then sublayers, then branches: attention and MLP in turns
        end = 1 + len(steps)
        layers = {
            "embed": slice(1),
            "resid_mid": slice(1, end, 2),
            "resid_post": slice(2, end, 2),
            "attn_out": slice(end, None, 2),
            "mlp_out": slice(end + 1, None, 2),
        }
        by_size = self._by_size(moments)
        values: dict[Key, Array] = {}
        for name, law in LAWS.items():
            columns = [law(config, x) for config, x in by_size]  # of all sites at once
            column = columns[0] if len(columns) == 1 else np.concatenate(columns, -1)
            for site, part in layers.items():
                if site in STATISTICS[name].sites:
                    values[name, site] = column[part]
        return values

    def _by_size(self, moments: Moments) -> list[tuple[Config, Moments]]:
        """The moments of designs of one size, on which the laws depend, each with a config."""
        sizes = {(config.d_model, config.batch_size) for config in self.configs}
        if len(sizes) == 1:
            return [(self.configs[0], moments)]
        return [
            (config, Moments(*(x[..., index : index + 1] for x in moments)))
            for index, config in enumerate(self.configs)
        ]

    def logits(self) -> dict[Key, Array]:
        """Statistics of the readout's logits of the stream after each layer that is covered,
        `[layer]`; none without a readout."""
        config, steps = self.configs[0], self.steps
        design = config.design
        if not design.predicts_text or len(steps) < 2:
            return {}
        kept = np.array(np.cumprod([step.kept for step in steps])[1::2], np.float64)
        moments = self._moments(steps.site[1::2], [step.site for step in steps[1::2]])
        return laws.output_logits(config, moments, design.tied * design.token_part * kept)

    @cached_property
    def rows(self) -> Rows:
        """Softmax statistics of the layers that are covered, averaged over the rows."""
        axis = self.axis
        layers = [step.attention for step in self.steps if step.attention]
        if not layers:
            none = self.steps.total[:0]  # [layer, position]
            return Rows(*[none[:, 0]] * (len(Rows._fields) - 2) + [axis.at_tokens(none)] * 2)
        laws = [layer.logits for layer in layers]
        columns = ((x.s, x.std, x.covariance[0], x.common) for x in laws)
        s, std, variance, common = map(stack, zip(*columns, strict=True))  # [layer, position]
        entropy, largest, received = self._softmax(layers, s)
        y = self.steps.inside[::2]
        (q, p), lengths = self._means(y), y[:, 0]
        # the part of the keys that the last row's logits tell apart, and the share of it by turns
        rho = self.gains.keys(q, np.fmin(np.fmax(p / q, 0.0), 1.0))
        own = 1 - axis.turns.keys[-1] * rho
        turned = ratio(own - (1 - rho), own)
        # a row of one key has neither spread nor entropy
        weight = np.where(axis.visible.ravel() > 1, axis.weights, 0.0)
        weight /= weight.sum()
        spread = np.sqrt(axis.total(weight, std * std * (1 - 1 / axis.visible)))
        if isinstance(self.table, Sloped):
            spread = spread.mean(1)  # over heads
        normalized = entropy / np.log(np.maximum(axis.visible, 2.0))
        s_max = s.max(axis=1)
        return Rows(
            s=s_max,
            uncapped=np.sqrt(variance).max(axis=1),
            total=np.sqrt(variance + common).max(axis=1),
            own=own,
            turned=turned,
            spread=spread,
            entropy=axis.total(axis.weights, entropy),
            normalized=axis.total(weight, normalized),
            largest=axis.total(axis.weights, largest),
            favor=s_max**2 / 2 * np.ptp(lengths, 1) / lengths.max(1),
            tokens=axis.at_tokens(entropy),
            received=received,
        )

    def _softmax(self, layers: Sequence[Attention], s: Array) -> tuple[Array, Array, Array]:
        """Entropy in nats and largest weight of each row, `[layer, position]`, and mean weight that
        each key receives, `[layer, token]`.

        Args:
            s: `[layer, position]`, standard deviation of the logits as softmax sees them.
        """
        axis, table = self.axis, self.table
        if isinstance(table, Sloped):  # the mean over heads; of keys E W_t(j) over all rows t
            averages = np.array([table.rows(row).mean(0)[:2] for row in s])
            received = np.array([table.weights(row).mean((0, 1)) for row in s])
            return averages[:, 0], averages[:, 1], received
        rows, kept = table.rows(s), np.ones_like(s)
        if self.gains.sink is not None:
            lost = by_layer(layer.lost for layer in layers if layer.lost)
            rows, kept = drain(rows, lost), lost.mass
        return rows.entropy, rows.largest, axis.received(kept)

    def back(self) -> Back | None:
        """The way back through a stack that is covered to its last layer; None where it is not, and
        where logits fall with distance."""
        config, gains, steps = self.configs[0], self.gains, self.steps
        if len(steps) < 2 * config.n_layers or isinstance(self.table, Sloped):
            return None
        # the tokens that the loss sees, before a norm that divides but after a function in its
        # place
        output, norm = steps.last, None
        if gains.final:
            normed, norm = normalize(output, gains, gains.d_model)
            output = normed if gains.point else output
        own, alike = own_share(config, steps), coincidence(config.n_ctx)
        starts = [loss_gradient(config, output.mean, alike, own) for config in self.configs]
        square, overlap, *_ = joined(starts)
        gradients, unit = backward.run(gains, self.axis, self.table, steps, overlap)
        return Back(gradients, output, norm, square, unit, overlap)

    def gradients(self, back: Back) -> dict[Key, Array]:
        """Gradients along the stream and by the weights, `[layer]`."""
        config, gains, axis, steps = self.configs[0], self.gains, self.axis, self.steps
        bent, length = 1.0, np.ones_like(axis.ones[0])
        if back.norm:  # after it a gradient is larger where the token is shorter
            length = 1 / (back.norm.square * back.unit)
            if gains.point:
                bent = 1 / axis.mean(back.norm.square)
        gradients, last = back.gradients, back.output.mean
        within = parameters.within(gains, axis, steps, gradients)
        if config.design.shared and steps.copies:  # else it is withdrawn
            within = parameters.over_copies(config.design, within, gradients.added_up)
        across = parameters.across(config, gains, axis, steps, last, gradients.alike, length, bent)
        weights = parameters.norms(config.design, gains, within, across, back.square * back.unit)
        stream = by_site(self._means(gradients.site)[0])
        return {
            **{("activation_gradient", at): column for at, column in stream.items()},
            **{("parameter_gradient", name): column for name, column in weights.items()},
        }

    def variances(self, back: Back | None) -> dict[Key, Array]:
        """Variance over draws of the logarithm of each statistic that scatters by factors, or of
        its square, `[layer]`. Copies of a layer scatter together, by more than this."""
        config = self.configs[0]
        # a signal that leaves float32's range in the first MLP has no layer that scatters
        if len(self.steps) < 2 or (config.design.copied and not back):
            return {}
        gradients, overlap = (back.gradients, back.overlap) if back else (None, 0.0)
        scattered = scatter(
            config, self.gains, self.axis, self.steps, self.first, gradients, overlap
        )
        forward = by_site(scattered.stream)
        if not self.gains.final:  # which divides by the length
            forward["logits"] = forward["resid_post"]
        forward |= {"attn_out": scattered.branch[::2], "mlp_out": scattered.branch[1::2]}
        backward = {}
        if back:
            backward = by_site(scattered.gradient)
            for tap in TAPS.values():
                half = int(not tap.before_mlp)  # 1 of an MLP
                backward |= dict.fromkeys(tap.matrices, scattered.weights[half::2])
            backward |= dict.fromkeys(("W_Q", "W_K"), scattered.queries)
        return {
            (row.name, site): column
            for row in STATISTICS.values()
            if row.by_factors
            for site, column in (backward if row.backward else forward).items()
            if site in row.sites
        }

    def _moments(self, y: Array, tokens: Sequence[Tokens]) -> Moments:
        """The tokens at some sites, in law.

        The squared correlation of two tokens is ρ² and v (1 − ρ)² by scatter. The overlaps of fresh
        coordinates scatter by 1/d by chance; only what is beyond is correlation of coordinates.

        Args:
            y: `[site, 1 + position, position]`, second moments in row 0, overlaps below.
            tokens: the same by site, averaged over positions.
        """
        axis, n = self.axis, self.configs[0].n_ctx
        q, p = self._means(y)
        v, w = (
            np.broadcast_to(axis.column(numbers)[:, 0, 0], q.shape)
            for numbers in zip(*((x.v, x.w + x.u) for x in tokens), strict=True)
        )
        scatter = np.maximum(v - 1 / self.gains.d_model, 0.0)
        by_scatter = scatter * np.clip(1 - p / q, 0.0, 1.0) ** 2
        squares = np.einsum("sij...,sij...,ij->s...", y, y, axis.pair_sum)
        return Moments(
            q,
            p,
            alike=squares / (n * q) ** 2 + (1 - 1 / n) * by_scatter,
            uneven=w,
            first=y[:, 0, 0],
            tokens=axis.at_tokens(y[:, 0]),
            others=axis.at_tokens(axis.with_others(y)),
        )

    def _means(self, y: Array) -> Array:
        """Second moment, and overlap of two different tokens, averaged over the tokens: `[2,
        site]`.

        Args:
            y: `[site, 1 + position, position]`, second moments in row 0, overlaps below. Of several
                designs it has a last axis of designs, and so has what is returned.
        """
        # both [1 + position, position]: zeros but in row 0, and zeros in row 0
        of_pairs = self.axis.pair_mean
        of_tokens = self.axis.averages[0].reshape(of_pairs.shape)
        weights = np.array([of_tokens, of_pairs])
        # not @: BLAS starts threads where arrays are a little larger, which takes longer than this
        return np.asarray(np.einsum("sij...,kij->ks...", y, weights))
