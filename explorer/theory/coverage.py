"""Limits of the theory: the predicted values that are withdrawn, and notes that say why. How far
those are off that stay is said in `rough`."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import numpy as np

from explorer.config import Config
from explorer.numbers import number
from explorer.sites import BRANCHES, MATRICES, STREAM, VECTORS
from explorer.theory.forward import LARGEST
from explorer.theory.inputs import repeated, spread
from explorer.theory.laws import Rows
from explorer.theory.positions import LONGEST
from explorer.theory.rough import Case, roughness
from explorer.translation import Note
from explorer.vocabulary import STATISTICS, Array, Key

RUNAWAY = 50.0
"""Standard deviation of the logits beyond which a row's gradient sits in the rare ties between its
largest keys, which an average over draws contains and a single draw of usual size does not."""
ALIKE = 1e-5
"""1 − ρ below which the difference between tokens is not resolved: by the theory, and nearly by
float32."""
NEAR_CAP = 0.3
"""Share of the output logits' soft cap from which on their spread is bent too far to be treated as
normal."""
SENTENCE_SPREAD = 1.2
"""Spread of the logits up to which the rows of attention to a sentence hold: at 1.85, without
positions, the entropy was off by .12, the correlation by .1."""
SMALL_INPUT = 3.0
"""Growth of the stream in the first attention from which on logits that fall with distance are not
followed."""
FAVOR = 0.05
"""Logarithm of a factor between the mean weights of two keys from which they are not equal."""

GRADIENTS = tuple(row.name for row in STATISTICS.values() if row.backward)
BY_POSITION = tuple(row.name for row in STATISTICS.values() if row.by_position)
OF_LOGITS = ("output_logit_rms", "output_logit_largest")
"""Statistics of the output's logits."""


def apply(
    config: Config, out: dict[Key, Array], rows: Rows, covered: int
) -> tuple[dict[Key, Array], dict[str, str]]:
    """Withdraws predictions that do not hold, and notes why, and by how much others may be off.

    Args:
        out: predictions as `[1, layer]`, `[1, layer, 1]` or `[1, layer, token]`, which are changed
            in place.
        rows: softmax statistics of the layers that the forward recursion reached.
        covered: sublayers that it reached.
    Returns:
        the values, nan where not covered, and notes: statistic to reason.
    """
    notes = _withdrawn(config, out, rows, covered)
    for statistic, rough in roughness(Case(config, out, rows)).items():
        notes[statistic] = Note.joined(filter(None, [notes.get(statistic), rough]))
    return out, notes


def _withdrawn(config: Config, out: dict[Key, Array], rows: Rows, covered: int) -> dict[str, str]:
    """Withdraws what does not hold; returns the reasons by statistic."""
    design = config.design
    if design.point and any(placement.has("sum") for placement in design.kinds):
        reason = Note(
            "not covered: a function of every sum makes a stream whose coordinates are not Gaussian"
        )
        _withdraw(out, STATISTICS, embedding=True)
        return dict.fromkeys(STATISTICS, reason)
    alike = _copied(config, out) if design.copied else {}
    if covered < 2 * config.n_layers:
        return _out_of_range(covered) | alike
    # a later rule may replace the note of an earlier one: their order matters
    notes: dict[str, str] = {}
    if design.point and any(placement.has("output") for placement in design.kinds):
        notes["max_abs"] = Note("not covered at branches, which a function bounds")
        _withdraw({key: value for key, value in out.items() if key[1] in BRANCHES}, ("max_abs",))
    _cancelled(out, notes)
    if design.point and design.final_norm:
        _flat_at_the_end(out, notes)
    if design.slopes:
        _sloped(config, out, notes)
    if config.output_cap and design.predicts_text:
        _softened(config, out, notes)
    _collapse(out, notes, rows)
    _favored(out, notes, rows)
    _runaway(config, out, notes, rows)
    if design.attends and not design.point:
        _divided_out(config, out, notes)
    if design.mix_shapes:
        _put_first(notes, Note("not covered: that by what mixes streams is measured only"))
    _beyond_range(out, notes)
    notes |= alike
    if design.sentence:
        _on_sentence(config, out, notes, rows)
    if design.point and design.final_norm:
        reason = Note("not covered: a function stands in the last norm's place")
        notes |= dict.fromkeys(OF_LOGITS, reason)
    elif design.tied:
        notes["output_logit_largest"] = Note(
            "not covered: a tied readout takes the token itself for the next one"
        )
    return notes


def _out_of_range(covered: int) -> dict[str, str]:
    """Notes on a signal that leaves float32's range after so many sublayers."""
    layer = covered // 2 + 1
    ahead = Note(
        "not covered from layer {layer} on: the signal leaves float32's range", layer=layer
    )
    back = Note("not covered: the signal leaves float32's range at layer {layer}", layer=layer)
    notes: dict[str, str] = dict.fromkeys(STATISTICS, ahead)
    return notes | dict.fromkeys(GRADIENTS, back)


def _beyond_range(out: Mapping[Key, Array], notes: dict[str, str]) -> None:
    """Withdraws gradients along the stream that leave float32's range."""
    for (statistic, _), value in out.items():
        if statistic != GRADIENTS[0]:
            continue
        lost = (value < 1 / LARGEST) & (value > 0) | (value > LARGEST)
        if lost.any():
            value[lost] = math.nan
            notes[statistic] = Note("not covered where it leaves float32's range")


def _withdraw(
    out: Mapping[Key, Array], statistics: Container[str], embedding: bool = False
) -> None:
    """Sets all values of some statistics to nan, but for those of the embedding, which are the
    config's own; with `embedding` those, too. Gradients at the embedding are never its own."""
    for (statistic, site), value in out.items():
        given = site == "embed" and statistic not in GRADIENTS
        if statistic in statistics and (embedding or not given):
            value.fill(math.nan)


def _put_first(notes: dict[str, str], reason: str) -> None:
    """Adds a reason before the others of the gradients by weights."""
    notes[GRADIENTS[1]] = Note.joined(filter(None, [reason, notes.get(GRADIENTS[1])]))


def _copied(config: Config, values: Mapping[Key, Array]) -> dict[str, str]:
    """Withdraws, where layers have the same weights, what has no law of how copies correlate: with
    some parts of attention, norms or stream everything, and on text the gradients by weights that
    are one set of parameters, which add up over copies and sequences. Returns the notes."""
    design = config.design
    attention = design.attends and (
        config.causal
        or design.inherits
        or design.rotates
        or design.gates
        or config.value_residual
        or design.sink.logit is not None
    )
    norms = design.point or any(placement.within for placement in design.kinds)
    stream = design.stream.parallel or design.stream.mixes
    forward_too = attention or norms or stream
    if forward_too:
        _withdraw(values, STATISTICS)
        reason = Note(
            "not covered: layers of the same weights have no law for this attention, these norms "
            "or this stream yet"
        )
        return dict.fromkeys(STATISTICS, reason)
    if not (design.shared and design.predicts_text):
        return {}
    _withdraw(values, GRADIENTS[1:])
    reason = Note("not covered: gradients of all layers that share a weight add up in it")
    return dict.fromkeys(GRADIENTS[1:], reason)


def _on_sentence(
    config: Config, out: Mapping[Key, Array], notes: dict[str, str], rows: Rows
) -> None:
    """Withdraws, where every sequence is the same sentence, what depends on which of its characters
    are equal, and everything where attention is uneven."""
    design = config.design
    lost = ["parameter_gradient", *BY_POSITION]
    # equal characters have equal keys, unless a vector for the position tells them apart
    if 0 < repeated(design.sentence) < 1 and design.attends and not design.embeds_positions:
        lost.append("logit_std")
    reason = Note("not covered: it depends on which characters of the sentence are equal")
    notes |= dict.fromkeys(lost, reason)
    _withdraw(out, lost, embedding=True)
    if rows.s.max(initial=0.0) > SENTENCE_SPREAD:
        reason = Note(
            "not covered: it depends on which characters of the sentence are equal, as attention "
            "is uneven (spread {spread})",
            spread=f"{rows.s.max():.2g}",
        )
        notes |= dict.fromkeys(STATISTICS, reason)
        _withdraw(out, STATISTICS)


def _softened(config: Config, out: dict[Key, Array], notes: dict[str, str]) -> None:
    """Withdraws gradients where output logits are near their soft cap: those of a token's own
    character, by a tied readout, or all of them."""
    s = spread(config, float(out["second_moment", STREAM[-1]][0, -1]))
    if config.design.tied or s > NEAR_CAP * config.output_cap:
        _withdraw(out, GRADIENTS)
        reason = Note(
            "not covered: output logits may reach their cap of {cap}", cap=f"{config.output_cap:g}"
        )
        notes |= dict.fromkeys(GRADIENTS, reason)


def _sloped(config: Config, out: dict[Key, Array], notes: dict[str, str]) -> None:
    """Withdraws gradients where logits fall with distance; and everything in long sequences, whose
    keys are followed one by one, and beside a small input."""
    before, after = (float(out["second_moment", site][0, 0]) for site in STREAM[:2])
    names = tuple(STATISTICS)
    if config.n_ctx > LONGEST:
        reason = Note(
            "not covered: logits that fall with distance in sequences of more than {most} tokens",
            most=LONGEST,
        )
    elif after > SMALL_INPUT * before:
        reason = Note("not covered: logits that fall with distance beside a small input")
    else:
        names = GRADIENTS
        reason = Note("not covered: logits that fall with distance")
    _withdraw(out, names)
    notes |= dict.fromkeys(names, reason)


def _cancelled(out: dict[Key, Array], notes: dict[str, str]) -> None:
    """Notes which gradients the recursion has left out: where keys are so alike that what a row
    gives to one of them and takes from the others cancels beyond the first order."""
    names = [
        site
        for (statistic, site), value in out.items()
        if statistic == GRADIENTS[1] and site in (*MATRICES, *VECTORS[:2]) and np.isnan(value).any()
    ]
    if names:
        notes[GRADIENTS[1]] = Note(
            "not covered where tokens are too alike: {matrices}", matrices=" and ".join(names)
        )


def _flat_at_the_end(out: dict[Key, Array], notes: dict[str, str]) -> None:
    """Withdraws gradients where the stream is so large that the function in the last norm's place
    has no slope: relative to the last layer's, they are 0 over 0."""
    gradient = out.get((GRADIENTS[0], STREAM[-1]))
    if gradient is not None and np.isnan(gradient[0, -1]):
        _withdraw(out, GRADIENTS)
        reason = Note("not covered: the last function is flat here, and lets no gradient through")
        notes |= dict.fromkeys(GRADIENTS, reason)


def _divided_out(config: Config, out: dict[Key, Array], notes: dict[str, str]) -> None:
    """Withdraws gradients of a gate or a sink that scales the whole branch, since attention has one
    head, where a norm divides that scale out and leaves what its ε leaves. Such a norm stands on
    the branch's output; or, without a residual stream, on the sum or before the MLP."""
    design = config.design
    layers = [
        layer
        for layer, (attention, mlp) in enumerate(
            zip(design.sublayers[::2], design.sublayers[1::2], strict=True)
        )
        if attention.has("output")
        or (not attention.skip and (attention.has("sum") or mlp.has("input")))
    ]
    scales_all = {"W_G": design.gates == 1, "sink": config.n_heads == 1}
    names = [name for name, alone in scales_all.items() if alone and (GRADIENTS[1], name) in out]
    for name in names:
        out[GRADIENTS[1], name][:, layers] = math.nan
    if names and layers:
        reason = Note(
            "{matrices} not covered: a norm divides out what multiplies the only head",
            matrices=" and ".join(names),
        )
        _put_first(notes, reason)


def _collapse(out: dict[Key, Array], notes: dict[str, str], rows: Rows) -> None:
    """Withdraws the spread of the logits, and gradients through them, from the layer on where
    tokens are so alike that both are lost in rounding."""
    alike = np.flatnonzero(rows.own < ALIKE)
    if not len(alike):
        return
    first = int(alike[0])
    for key in (
        ("logit_std", "attn_scores"),
        ("parameter_gradient", "W_Q"),
        ("parameter_gradient", "W_K"),
    ):
        if key in out:
            out[key][:, first:] = math.nan
    notes["logit_std"] = Note(
        "not covered from layer {layer} on: its tokens are alike to 1 in 100,000", layer=first + 1
    )
    notes["parameter_gradient"] = Note(
        "W_Q and W_K not covered from layer {layer} on: its tokens are alike to 1 in 100,000",
        layer=first + 1,
    )


def _favored(out: dict[Key, Array], notes: dict[str, str], rows: Rows) -> None:
    """Withdraws the attention that tokens receive where keys differ in length, as those of tokens
    under a causal mask without norms do. A key whose logits have the standard deviation s gets a
    weight of E e^(sz) = e^(s²/2) in the mean, z normal; `rows.favor` is the logarithm of the
    largest ratio of two keys."""
    uneven = np.flatnonzero(rows.favor > FAVOR)
    if len(uneven):
        out["attention_received", "pattern"][:, uneven] = math.nan
        notes["attention_received"] = Note(
            "not covered from layer {layer} on: longer keys receive more", layer=int(uneven[0]) + 1
        )


def _runaway(config: Config, out: dict[Key, Array], notes: dict[str, str], rows: Rows) -> None:
    """Withdraws gradients below attention whose logits are so far apart that it is one-hot: its
    rare ties carry the gradients of everything below."""
    wild = np.flatnonzero(rows.s > RUNAWAY)
    if not len(wild) or not any(config.design.branches):
        return
    last = int(wild[-1])
    for (statistic, site), value in out.items():
        if statistic in GRADIENTS:
            # of layer `last` itself, what comes after its softmax holds
            before_softmax = site in ("embed", "W_Q", "W_K")
            value[:, : last + before_softmax] = math.nan
    reason = Note(
        "not covered before layer {layer}: attention logits run away (spread {spread}), and rare "
        "ties between keys carry the gradient",
        layer=last + 1,
        spread=number(rows.s[last], 2),
    )
    notes |= dict.fromkeys(GRADIENTS, reason)
