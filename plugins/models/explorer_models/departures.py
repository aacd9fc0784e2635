"""Facts in which a model departs from the design that it is to have: what its layers do, not what
follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from explorer.config import Config
from explorer.diagnosis.every_layer import lost_stream, wrong_rotary, wrong_softmax
from explorer.profile import Profile
from explorer.schemes.activation import second_moment
from explorer.schemes.attention import DIVISORS
from explorer.schemes.placement import FINAL_NORMS, PLACEMENTS, SITES
from explorer.sites import BRANCHES
from explorer_models.facts import Facts
from explorer_models.fields import EXACT, Majority
from explorer_models.matched import norms_of, read_branches
from explorer_models.texts import text
from explorer_models.twin import Twin

ATTENTION = (
    "qk_norm",
    "logit_cap",
    "sink",
    "attention_gate",
    "value_residual",
    "residual_attention",
)
"""Fields of attention, whose values are compared as they are, each with a text of its name."""
SOURCES = {
    "norm": "norm",
    "mlp": "mlp",
    "stream": "norm_placement",
    "layer_weights": "distribution",
    "rope_base": "rope_base",
    "rope_fraction": "rope_fraction",
    **dict.fromkeys(ATTENTION, "attention_scale"),
}
"""Every field that is compared as it is, and the field that is read along with it: one may be read
as its default."""
NEAR = 0.05
"""Relative difference of two activations' second moments up to which one is another way to compute
the other."""
TURNED = ("rotary", "alibi")
"""Positions that attention itself has. Learned positions are added to the embeddings, where they
cannot be recognized for certain."""


class Departures(NamedTuple):
    """A model's facts beside a design's."""

    facts: tuple[str, ...]
    """A sentence for each in which they differ, without its full stop."""
    fields: dict[str, Any]
    """Fields of the design as the model has them, where a config can say it."""
    remarks: tuple[str, ...]
    """Differences that are none: another way to compute the same."""


def departures(
    layers: Sequence[Facts], nearest: Twin, design: Config, profile: Profile
) -> Departures:
    """The facts in which a model departs from a design of its size; what was not read is not
    compared.

    Args:
        layers: the facts of each layer.
        nearest: the model's twin.
        design: the expected one.
        profile: of the model.
    """
    fields: dict[str, Any] = {}
    model = nearest.config
    facts = [
        _clause(finding.meaning)
        for rule in (wrong_softmax, lost_stream, wrong_rotary)
        if (finding := rule(profile)) is not None
    ]
    if design.design.attends and not model.design.attends:
        facts.append(text("departs", "attention"))
    known = nearest.read_fields
    for part, changed in (
        _mask(layers, model, design, known),
        _divisor(layers, model, design, known),
        _positions(model, design, known, profile),
        _norms(layers, model, design),
        _final(nearest, design),
    ):
        facts += part
        fields |= changed
    for field, source in SOURCES.items():
        own, usual = getattr(model, field), getattr(design, field)
        if source in nearest.read_fields and _matters(design, field) and not _same(own, usual):
            facts.append(text("departs", field, value=_word(own), usual=_word(usual)))
            fields[field] = own
    remarks: tuple[str, ...] = ()
    if "activation" in nearest.read_fields and model.activation != design.activation:
        sentence = text("departs", "activation", value=model.activation, usual=design.activation)
        if _alike(model.activation, design.activation):
            remarks = (sentence,)
        else:
            facts.append(sentence)
            fields["activation"] = model.activation
    return Departures(tuple(facts), fields, remarks)


Part = tuple[list[str], dict[str, Any]]
"""Sentences, and the fields that they change."""


def _mask(
    layers: Sequence[Facts], model: Config, design: Config, read_fields: Sequence[str]
) -> Part:
    """Whether queries see later keys, or a mask is of another kind."""
    masks = [facts["attn_scores", "mask"] for facts in layers if ("attn_scores", "mask") in facts]
    if "causal" not in read_fields or not masks:
        return [], {}
    bare = sum(mask == "none" for mask in masks)
    if design.causal and bare:
        key = "no_mask" if bare == len(masks) else "some_masks"
        return [text("departs", key, count=bare, layers=len(masks))], {"causal": False}
    kind = Counter(masks).most_common(1)[0][0]
    usual = "causal" if design.causal else "none"
    if kind == usual:
        return [], {}
    return [text("departs", "mask", value=kind, usual=usual)], {"causal": model.causal}


def _divisor(
    layers: Sequence[Facts], model: Config, design: Config, read_fields: Sequence[str]
) -> Part:
    """The number by which logits are divided. It has no effect where queries and keys are
    normed."""
    row = DIVISORS[design.attention_scale]
    if "attention_scale" not in read_fields or row.uses or design.qk_norm or model.qk_norm:
        return [], {}
    own, usual = Majority(layers, ()).middle("attn_scores", "divisor"), row.of(design.d_head)
    if not math.isfinite(own) or abs(own / usual - 1) <= EXACT:
        return [], {}
    divides_by_root = math.isclose(usual, math.sqrt(design.d_head))
    key = "undivided" if abs(own - 1) <= EXACT and divides_by_root else "divisor"
    exact = abs(own / DIVISORS[model.attention_scale].of(design.d_head) - 1) <= EXACT
    return (
        [text("departs", key, value=own, usual=usual)],
        {"attention_scale": model.attention_scale} if exact else {},
    )


def _positions(model: Config, design: Config, read_fields: Sequence[str], profile: Profile) -> Part:
    """Positions that attention itself has, rotary or ALiBi."""
    own, usual = (
        position if position in TURNED else "none" for position in (model.position, design.position)
    )
    if "attention_scale" not in read_fields or own == usual or "rotary" in profile.facts:
        return [], {}
    speed = profile.facts.get("rotary_speed")
    if isinstance(speed, float) and usual == "rotary":
        return [text("departs", "speed", value=speed)], {}
    return [text("departs", "position", value=own, usual=usual)], {"position": model.position}


def _norms(layers: Sequence[Facts], model: Config, design: Config) -> Part:
    """Norms that most layers have and the design has not, or the other way round."""
    place = PLACEMENTS[design.norm_placement].sublayer
    missing, extra = Counter[str](), Counter[str]()
    for index, half, facts in read_branches(layers):
        norms, usual = norms_of(facts, BRANCHES[half]), place(2 * index + half, len(layers)).norms
        missing.update((SITES[name].attention, SITES[name].mlp)[half] for name in usual - norms)
        extra.update((SITES[name].attention, SITES[name].mlp)[half] for name in norms - usual)
    sentences = [
        text("departs", key, place=norm, count=count, layers=len(layers))
        for key, counts in (("no_norm", missing), ("extra_norm", extra))
        for norm, count in counts.items()
        if 2 * count > len(layers)
    ]
    return sentences, {"norm_placement": model.norm_placement} if sentences else {}


def _final(nearest: Twin, design: Config) -> Part:
    """Whether a norm follows the last layer."""
    own, usual = (
        FINAL_NORMS[config.final_norm].present(PLACEMENTS[config.norm_placement])
        for config in (nearest.config, design)
    )
    if own == usual or text("unread", "final_norm") in nearest.unread:
        return [], {}
    return [text("departs", "final_extra" if own else "final_missing")], {
        "final_norm": "yes" if own else "no"
    }


def _matters(design: Config, field: str) -> bool:
    """Whether a field of the design has an effect."""
    if field in ("rope_base", "rope_fraction"):
        return design.design.rotates
    return field != "norm" or PLACEMENTS[design.norm_placement].normalizes


def _same(own: Any, usual: Any) -> bool:
    """Whether two values of a field are equal; numbers may differ by `EXACT`."""
    if isinstance(own, float) and isinstance(usual, float):
        return math.isclose(own, usual, rel_tol=EXACT)
    return bool(own == usual)


def _alike(own: str, usual: str) -> bool:
    """Whether one activation is another way to compute the other."""
    return abs(math.log(second_moment(own) / second_moment(usual))) <= NEAR


def _word(value: Any) -> Any:
    """A value as a sentence has it: yes or no for True or False."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


def _clause(sentence: str) -> str:
    """A sentence as a part of a longer one: without its capital and its full stop."""
    return (
        f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"
        if not sentence.startswith("MLP")
        else sentence
    )


def unseen(
    design: Profile, model: Profile, keys: Sequence[tuple[str, str]], config: Config, twin: Config
) -> Iterator[tuple[str, str]]:
    """Statistics and sites that a design's profile has and a model's has not.

    Left out are sites that the model need not have. Two parallel branches read one stream, so that
    their layer has no stream between them. A gate that the model has as the design does, but no
    matrix of its own for it, lies within another matrix.

    Args:
        design, model: the profiles.
        keys: the statistics and sites in question.
        config: of the design.
        twin: the model as a config, as far as one describes it.
    """
    not_needed = {
        "resid_mid": config.design.stream.parallel and twin.design.stream.parallel,
        "W_G": config.attention_gate == twin.attention_gate,
        "W_gate": config.mlp == twin.mlp,
    }
    for statistic, site in keys:
        key = statistic, site
        if key in design.values and key not in model.values and not not_needed.get(site, False):
            yield key
