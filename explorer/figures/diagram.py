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
from explorer.figures.stack import added, along, missing_words
from explorer.numbers import listed, number
from explorer.profile import Profile
from explorer.schemes.attention import DIVISORS
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import NORMS, SITES
from explorer.schemes.residual import RESIDUALS
from explorer.sites import BRANCHES

STREAM, LANE, HEIGHT = 75, 36, 105
"""Pixels from the top: the residual line, the branch above it, and the lower end of the drawing."""
TAP, GAP, LETTER, ROOM = 26, 12, 7.6, 16
"""Pixels: from the left to where a branch leaves the stream, between two parts, across a letter,
and what a part is wider than its label."""
LEAST_AFTER, ABOVE, BELOW = 64, 22, 27
"""Pixels: of the stream after the sum, at least; and to the baselines of texts, from the branch up
and from the stream down."""
AFTER = {"attn_out": "resid_mid", "mlp_out": "resid_post"}
"""The stream after each branch."""


class Part(NamedTuple):
    """A part of a layer: its label, the fields that decide it, and what it is in words."""

    label: str
    fields: tuple[str, ...]
    """The first is opened at a click."""
    words: str

    @property
    def width(self) -> float:
        """Pixels across its box."""
        return LETTER * len(self.label) + ROOM


class Branch(NamedTuple):
    """A sublayer: the parts of its branch in their order, those on the stream before the sum, and
    those after it."""

    site: str
    """Of the branch's output."""
    title: str
    parts: Sequence[Part]
    """On the branch."""
    skip: Sequence[Part]
    """On the stream beside it."""
    after: Sequence[Part]
    """On the stream after the sum."""
    has_stream: bool
    """Whether the stream goes on beside the branch."""


def branches(config: Config, layer: int) -> list[Branch]:
    """The sublayers of a layer, 1 … N: attention, if the design has it, and the MLP."""
    mlp = _branch(config, layer, is_mlp=True)
    return [_branch(config, layer, is_mlp=False), mlp] if config.design.attends else [mlp]


def _branch(config: Config, layer: int, *, is_mlp: bool) -> Branch:
    """Attention or the MLP of a layer, 1 … N."""
    design, index = config.design, 2 * (layer - 1) + is_mlp
    place, norm = design.sublayers[index], NORMS[config.norm]

    def norms(signal: str, scale: str = "") -> list[Part]:
        """The norms on a signal of the sublayer, such as "input", with the factor after them as
        text."""
        fields = ("norm_placement", "norm")
        parts = []
        for name, site in SITES.items():
            if name in place.norms and site.part == signal:
                name_of_signal = site.mlp if is_mlp else site.attention
                words = f"{norm.title} on {name_of_signal}{scale}"
                parts.append(Part(norm.short + scale, fields, words))
        return parts

    parts: list[Part] = []
    if design.stream.mixes:
        words = "A learned mix of several streams or outputs"
        parts.append(Part("mix", ("stream", "n_streams"), words))
    parts += norms("input", "" if place.scale == 1 else f" × {number(place.scale)}")
    parts += norms("values")
    parts += _mlp(config) if is_mlp else _attention(config)
    if place.has("last"):
        variance = ("mlp_variance" if is_mlp else "attention_variance", "init_variance")
        parts += norms("last")
        parts.append(Part("last matrix", variance, "The branch's last matrix"))
    parts += norms("output")
    parts += _factor(config, place.branch, of_stream=False)
    skip = norms("skip")
    if design.profiled:
        skip.append(Part("× ω", ("residual",), "The stream times a factor found in a first pass"))
    else:
        skip += _factor(config, place.skip, of_stream=True)
    after = norms("sum")
    is_last = index == len(design.sublayers) - 1
    if design.final_norm and is_last:
        words = f"{norm.title} after the last layer"
        after.append(Part(f"final {norm.short}", ("final_norm", "norm"), words))
    title = "MLP" if is_mlp else "Attention"
    if is_mlp and design.stream.parallel and design.attends:
        title = "MLP, of the layer's input"
    return Branch(
        site=BRANCHES[is_mlp],
        title=title,
        parts=parts,
        skip=skip,
        after=after,
        has_stream=place.skip != 0,
    )


def _attention(config: Config) -> Iterator[Part]:
    """The parts of attention between its norms, in the order of the forward pass."""
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
    """The MLP's activation, with its gate if it has one."""
    name, title = config.activation.replace("_", " "), "Activation"
    label = name
    if MLPS[config.mlp].gated:
        label, title = f"{name} ⊙ gate", "Gated activation"
    yield Part(label, ("activation", "mlp"), f"{title} {name}")


def _factor(config: Config, factor: float, *, of_stream: bool) -> list[Part]:
    """The multiplier of the stream or of a branch, where it is α, the design's choice, or is not 1;
    empty where nothing is multiplied."""
    words = f"The {'stream' if of_stream else 'branch'} times {number(factor)}"
    if config.matters("alpha") and of_stream is RESIDUALS[config.residual].scales_stream:
        return [Part(f"α = {number(factor)}", ("alpha", "residual"), words)]
    has_no_stream = of_stream and factor == 0
    if factor == 1 or has_no_stream:
        return []
    return [Part(f"× {number(factor)}", ("residual", "norm_placement", "parametrization"), words)]


def moments(config: Config, profile: Profile | None, layer: int) -> dict[str, str]:
    """Second moments in a layer, 1 … N, as text: "1.2", "not finite", or "not covered" by theory.

    By site: of what each branch adds, its factor included, of the stream after it, and, by the name
    `input`, of the stream before the layer. Empty where there are none."""
    signal, adds = along(config, profile, "second_moment"), added(config, profile)
    if profile is None or signal is None or adds is None:
        return {}
    first = 2 * (layer - 1)  # sublayer
    sites = ("input", *AFTER.values(), *AFTER)
    values = (*signal[first : first + 3], *adds[first : first + 2])
    return {
        site: number(value) if math.isfinite(value) else missing_words(profile)
        for site, value in zip(sites, values, strict=True)
    }


def layer_words(config: Config, layer: int, profile: Profile | None) -> str:
    """A layer, 1 … N, in words: what its branches add, and the stream before it and after it."""
    numbers = moments(config, profile, layer)
    sentence = f"Layer {layer} of {config.n_layers}"
    if not numbers:
        return sentence
    adds = [f"{branch.title} adds {numbers[branch.site]}" for branch in branches(config, layer)]
    return f"{sentence}. {listed(adds)}; signal {numbers['input']} → {numbers['resid_post']}"


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
    numbers, drawn = moments(config, profile, layer), branches(config, layer)
    return "".join(_svg(branch, numbers, changed, is_first=branch is drawn[0]) for branch in drawn)


def _svg(branch: Branch, numbers: Mapping[str, str], changed: set[str], *, is_first: bool) -> str:
    """The drawing of a branch above its part of the stream.

    Args:
        numbers: second moments as text, by site: see `moments`.
        changed: fields whose parts are marked.
        is_first: whether the layer's input is at its left end.
    """
    adds = f"adds {numbers[branch.site]}" if branch.site in numbers else ""

    # pixels from the left: the branch leaves at TAP and joins at `total`, beyond its boxes and the
    # two texts above them; the stream goes on to `width`
    boxes, boxes_end = _boxes(branch.parts, TAP + GAP, LANE, changed)
    texts_end = TAP + GAP + LETTER * (len(branch.title) + 2 + len(adds))  # two letters between
    total = max(boxes_end, texts_end)
    # on the stream: in the middle beside the branch, and after the sum
    skip_width = sum(part.width + GAP for part in branch.skip) - GAP
    skip_boxes, _ = _boxes(branch.skip, (TAP + total - skip_width) / 2, STREAM, changed)
    after_boxes, after_end = _boxes(branch.after, total + 2 * GAP, STREAM, changed)
    width = max(after_end, total + LEAST_AFTER)

    above, below = LANE - ABOVE, STREAM + BELOW
    texts = _text(branch.title, TAP + GAP, above, "start", "ex-block-title")
    if is_first and "input" in numbers:
        texts += _text(f"signal {numbers['input']}", 2, below, "start", "ex-block-number")
    after = AFTER[branch.site]
    if after in numbers:
        texts += _text(f"→ {numbers[after]}", width, below, "end", "ex-block-number")
    texts += _text(adds, total, above, "end", "ex-block-number")

    parts = (*branch.parts, *branch.skip, *branch.after)
    spoken = ", ".join([branch.title, *(part.words for part in parts)])
    lines = _lines(total, width, has_stream=branch.has_stream)
    return (
        f'<svg class="ex-block" role="group" aria-label="{escape(spoken)}" viewBox="0 0 {width:g} {HEIGHT}" '
        f'width="{width:g}" height="{HEIGHT}">{lines}{texts}{boxes}{skip_boxes}{after_boxes}</svg>'
    )


def _lines(total: float, width: float, *, has_stream: bool) -> str:
    """The stream with an arrow's head at its end, the branch above it, and the circle of their sum,
    with a plus if there is a stream beside the branch.

    Args:
        total: where the sum is, in pixels from the left.
        width: of the drawing, in pixels.
    """
    gap = "" if has_stream else f"H{TAP}M{total} {STREAM}"
    stream = f"M0 {STREAM}{gap}H{width - 1}m-7 -4l7 4l-7 4"
    branch = f"M{TAP} {STREAM}V{LANE}H{total}V{STREAM - 8}"
    lines = (
        f'<path class="ex-block-line" d="{stream}{branch}"/>'
        f'<circle class="ex-block-sum" cx="{total}" cy="{STREAM}" r="8"/>'
    )
    if has_stream:
        lines += f'<path class="ex-block-line" d="M{total - 5} {STREAM}h10m-5 -5v10"/>'
    return lines


def _boxes(parts: Sequence[Part], x: float, y: float, changed: set[str]) -> tuple[str, float]:
    """Parts side by side from a left edge, at the height of their middles; and where the next one
    would begin; in pixels."""
    boxes = ""
    for part in parts:
        boxes += _box(part, x, y, changed)
        x += part.width + GAP
    return boxes, x


def _text(words: str, x: float, y: float, anchor: str, css_class: str) -> str:
    """A text at a point, in pixels, at which it starts, ends or has its middle, as `anchor`
    says."""
    return f'<text class="{css_class}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _box(part: Part, x: float, y: float, changed: set[str]) -> str:
    """A part as a button that opens its first field, from its left edge and its middle's height in
    pixels."""
    css_class = "ex-part ex-changed" if changed.intersection(part.fields) else "ex-part"
    words = escape(f"{part.words}. Opens {Config.specs()[part.fields[0]].about.label}.")
    return (
        f'<g class="{css_class}" role="button" tabindex="-1" data-opens="{part.fields[0]}" aria-label="{words}">'
        f'<title>{words}</title><rect x="{x:g}" y="{y - 14:g}" width="{part.width:g}" height="28" rx="6"/>'
        f"{_text(part.label, x + part.width / 2, y + 4.5, 'middle', '')}</g>"
    )
