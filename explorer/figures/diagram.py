"""The diagram of a layer as SVG: residual line, branches, norms, factors, and the signal's size
along them.

It is drawn from `Design`, so every design has one. Each part names the fields that decide it: the
page opens the first of them at a click. A branch is a drawing of its own, so that a narrow page can
put one below the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from explorer.config import Config, differences
from explorer.numbers import number
from explorer.profile import BRANCHES, STATISTICS, Profile
from explorer.schemes.attention import DIVISORS
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import NORMS, SITES
from explorer.schemes.residual import RESIDUALS

STREAM, LANE, HEIGHT = 84, 39, 117
"""Pixels from the top: the residual line, the branch above it, and the whole drawing."""
TAP, GAP, LETTER, ROOM = 26, 12, 7.6, 16
"""Pixels: from the left to where a branch leaves the stream, between two parts, of a letter, around
a part's label."""
AFTER = {"attn_out": "resid_mid", "mlp_out": "resid_post"}
"""The stream after each branch."""


class Part(NamedTuple):
    """A part of a layer: its label, the fields that decide it, and what it is in words."""

    label: str
    fields: tuple[str, ...]
    words: str

    @property
    def width(self) -> float:
        """Pixels."""
        return LETTER * len(self.label) + ROOM


class Branch(NamedTuple):
    """A sublayer: the parts of its branch in their order, those on the stream before the sum, and
    those after it."""

    site: str
    """Of the branch's output."""
    title: str
    parts: Sequence[Part]
    skip: Sequence[Part]
    after: Sequence[Part]
    has_stream: bool
    """Whether the stream goes on beside the branch."""


def branches(config: Config, layer: int) -> list[Branch]:
    """The sublayers of a layer, 1 … N."""
    return [_branch(config, layer, index) for index in (0, 1) if index or config.design.attends]


def _branch(config: Config, layer: int, index: int) -> Branch:
    design, number_of = config.design, 2 * layer - 2 + index
    place = design.sublayers[number_of]

    def norms(part: str, scale: str = "") -> list[Part]:
        """The norms on a signal of the sublayer."""
        norm = NORMS[config.norm]
        return [
            Part(
                norm.short + scale,
                ("norm_placement", "norm"),
                f"{norm.title} on {site[1 + index]}{scale}",
            )
            for name, site in SITES.items()
            if name in place.norms and site.part == part
        ]

    parts: list[Part] = []
    if design.stream.mixes:
        parts.append(
            Part("mix", ("stream", "n_streams"), "A learned mix of several streams or outputs")
        )
    parts += norms("input", "" if place.scale == 1 else f" × {number(place.scale)}")
    parts += norms("values")
    parts += _mlp(config) if index else _attention(config)
    if place.has("last"):
        variance = ("mlp_variance" if index else "attention_variance", "init_variance")
        parts += norms("last")
        parts.append(Part("last matrix", variance, "The branch's last matrix"))
    parts += norms("output")
    profiled = Part("× ω", ("residual",), "The stream times a factor found in a first pass")
    skip = norms("skip") + (
        [profiled] if design.profiled else _factor(config, place.skip, of_stream=True)
    )
    after = norms("sum")
    if design.final_norm and number_of == 2 * config.n_layers - 1:
        norm = NORMS[config.norm]
        after.append(
            Part(
                f"final {norm.short}", ("final_norm", "norm"), f"{norm.title} after the last layer"
            )
        )
    title = (
        "Attention",
        "MLP, of the layer's input" if design.stream.parallel and design.attends else "MLP",
    )[index]
    parts += _factor(config, place.branch, of_stream=False)
    return Branch(BRANCHES[index], title, parts, skip, after, place.skip != 0)


def _attention(config: Config) -> Iterator[Part]:
    """The parts of attention between its norms."""
    design, earlier = config.design, "the earlier tokens" if config.causal else "all tokens"
    if design.normalizes_heads:
        fields = ("qk_norm", "norm_placement", "qk_norm_over", "qk_gain")
        yield Part("QK-norm", fields, "Norm on queries and keys")
    if design.rotates or design.slopes:
        label = "rotary" if design.rotates else "ALiBi"
        yield Part(label, ("position", "rope_base", "rope_fraction"), f"Positions: {label}")
    logits = DIVISORS[config.attention_scale].short
    yield Part(logits, ("attention_scale", "ssmax_scale"), f"Attention logits {logits}")
    if design.inherits:
        yield Part("+ earlier logits", ("residual_attention",), "Logits of earlier layers, added")
    if config.logit_cap:
        yield Part(f"cap {number(config.logit_cap)}", ("logit_cap",), "Soft cap on the logits")
    yield Part(
        "masked softmax" if config.causal else "softmax", ("causal",), f"Softmax over {earlier}"
    )
    if design.sink.logit is not None:
        yield Part("sink", ("sink",), "Attention sink")
    if config.value_residual:
        yield Part("+ first values", ("value_residual",), "Values of the first layer, added")
    if design.gates:
        yield Part("gate", ("attention_gate",), "Gate on attention's output")


def _mlp(config: Config) -> Iterator[Part]:
    name, gate = config.activation.replace("_", " "), " ⊙ gate" if MLPS[config.mlp].gated else ""
    yield Part(
        name + gate, ("activation", "mlp"), f"{'Gated activation' if gate else 'Activation'} {name}"
    )


def _factor(config: Config, factor: float, *, of_stream: bool) -> list[Part]:
    """The multiplier of the stream or of a branch, where it is chosen or is not 1; none of a
    missing stream."""
    words = f"The {'stream' if of_stream else 'branch'} times {number(factor)}"
    if config.matters("alpha") and of_stream is RESIDUALS[config.residual].scales_stream:
        return [Part(f"α = {number(factor)}", ("alpha", "residual"), words)]
    if factor == 1 or (of_stream and factor == 0):
        return []
    return [Part(f"× {number(factor)}", ("residual", "norm_placement", "parametrization"), words)]


def moments(profile: Profile | None, layer: int) -> dict[str, str]:
    """Second moment after each sublayer of a layer, of each branch, and of the layer's input
    (`input`), as text: "= 1.2", or "not finite"."""
    if profile is None:
        return {}
    row = STATISTICS["second_moment"]
    key, at = ("resid_post", layer - 2) if layer > 1 else ("embed", 0)
    places = {"input": (key, at)} | {site: (site, layer - 1) for site in (*AFTER, *AFTER.values())}
    return {
        name: _equals(float(row.mean(profile[row.name, site])[index]))
        for name, (site, index) in places.items()
        if (row.name, site) in profile
    }


def _equals(value: float) -> str:
    return f"= {number(value)}" if math.isfinite(value) else "not finite"


def diagram(
    config: Config, layer: int, profile: Profile | None = None, reference: Config | None = None
) -> str:
    """The SVG of a layer, a drawing for each of its branches.

    Args:
        layer: 1 … N.
        profile: gives second moments; drawn without numbers when left out.
        reference: parts of which a field differs from this config's are marked.
    """
    changed = set(differences(config, reference)) if reference else set()
    numbers, drawn = moments(profile, layer), branches(config, layer)
    return "".join(_svg(branch, numbers, changed, is_first=branch is drawn[0]) for branch in drawn)


def _svg(branch: Branch, numbers: Mapping[str, str], changed: set[str], *, is_first: bool) -> str:
    x, boxes = float(TAP + GAP), []
    for part in branch.parts:
        boxes.append(_box(part, x, LANE, changed))
        x += part.width + GAP
    size = f"E F² {numbers[branch.site]}" if branch.site in numbers else ""
    total = max(x, TAP + GAP + LETTER * (len(branch.title) + len(size) + 2))  # where the sum is
    between = sum(part.width + GAP for part in branch.skip) - GAP
    at = (TAP + total - between) / 2
    for part in branch.skip:
        boxes.append(_box(part, at, STREAM, changed))
        at += part.width + GAP
    x = total + 2 * GAP
    for part in branch.after:
        boxes.append(_box(part, x, STREAM, changed))
        x += part.width + GAP
    width = max(x, total + 64)
    stream = (
        f"M0 {STREAM}H{width - 1}"
        if branch.has_stream
        else f"M0 {STREAM}H{TAP}M{total} {STREAM}H{width - 1}"
    )
    lines = (
        f'<path class="ex-block-line" d="{stream}m-7 -4l7 4l-7 4M{TAP} {STREAM}V{LANE}H{total}V{STREAM - 8}"/>'
        f'<circle class="ex-block-sum" cx="{total}" cy="{STREAM}" r="8"/>'
    )
    if branch.has_stream:
        lines += f'<path class="ex-block-line" d="M{total - 5} {STREAM}h10m-5 -5v10"/>'
    ends = [("input", 2, "start")] if is_first else []
    texts = [
        _text(f"q {numbers[site]}", across, STREAM + 28, anchor, "ex-block-number")
        for site, across, anchor in (*ends, (AFTER[branch.site], width, "end"))
        if site in numbers
    ]
    texts.append(_text(size, total, LANE - 24, "end", "ex-block-number"))
    title = _text(branch.title, TAP + GAP, LANE - 24, "start", "ex-block-title")
    spoken = ", ".join(
        [branch.title, *(part.words for part in (*branch.parts, *branch.skip, *branch.after))]
    )
    return (
        f'<svg class="ex-block" role="group" aria-label="{escape(spoken)}" viewBox="0 0 {width:g} {HEIGHT}" '
        f'width="{width:g}" height="{HEIGHT}">{lines}{title}{"".join(texts)}{"".join(boxes)}</svg>'
    )


def _text(words: str, x: float, y: float, anchor: str, css_class: str) -> str:
    return f'<text class="{css_class}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _box(part: Part, x: float, y: float, changed: set[str]) -> str:
    """A part, from its left edge and its middle."""
    css_class = "ex-part ex-changed" if changed.intersection(part.fields) else "ex-part"
    words = escape(f"{part.words}. Opens {Config.specs()[part.fields[0]].about.label}.")
    return (
        f'<g class="{css_class}" role="button" tabindex="-1" data-opens="{part.fields[0]}" aria-label="{words}">'
        f'<title>{words}</title><rect x="{x:g}" y="{y - 14:g}" width="{part.width:g}" height="28" rx="6"/>'
        f"{_text(part.label, x + part.width / 2, y + 4.5, 'middle', '')}</g>"
    )
