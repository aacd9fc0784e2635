"""`twin`: the design of ours that is nearest to a model of any code, how near it is, and what could not be read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.display import table
from explorer.numbers import number
from explorer.own.facts import Facts
from explorer.own.fields import EXACT, GAINED, Majority, Source, folded, mlp, norms, sizes, weights
from explorer.own.matched import Fit, fit, gains, offsets
from explorer.profile import BRANCHES
from explorer.schemes.attention import DIVISORS
from explorer.schemes.residual import multipliers
from explorer.schemes.scale import shapes, variances

# Fields of a config that say what attention does, from what most layers do.


def attention(majority: Majority) -> dict[str, Any]:
    """Everything about attention."""
    if not majority.usual("layer", "attends"):
        if "attn_out" in majority.usual("layer", "branches", ()):
            majority.parts.append("the first of its two branches is no attention that is read; the twin has MLPs alone")
        return {"attention": "none"}
    if majority.usual("attn_scores", "d_head") is None:
        majority.unread.append("attention's logits: its product of queries and keys was not seen")
        return {}
    facts = {name: majority.usual("attn_scores", name) for name in (
        "d_head", "n_heads", "cap", "normed", "mask", "position", "turn", "sink", "mixes_values", "inherits")}
    width, heads = majority.usual("layer", "width"), max(1, facts["n_heads"])
    fields: dict[str, Any] = {"n_heads": heads, "logit_cap": facts["cap"], "sink": facts["sink"]}
    if facts["d_head"] * heads != width:
        fields["head_size"] = facts["d_head"]
    shape = majority.usual("W_K", "shape")
    keys = shape[1] // facts["d_head"] if shape else heads
    if shape and 0 < keys < heads:
        fields["n_kv_heads"] = keys
    fields |= _logits(majority, facts["d_head"])
    fields |= _places(majority, facts)
    # facts["normed"] is of q, k and v; a placement that normalizes values needs no QK-norm beside it
    if facts["normed"][0] and facts["normed"][1] and not facts["normed"][2]:
        fields |= {"qk_norm": True, "qk_norm_over": facts["normed"][0] if heads > 1 else "head"}
        gain = majority.middle("attn_scores", "gain")
        gain *= fields.get("qk_gain", 1.0)
        fields["qk_gain"] = gain if abs(math.log(max(gain, 1e-9))) > GAINED else 1.0
    gates = majority.usual("attn_out", "gates", 0)
    fields["attention_gate"] = {0: "none", heads: "head", heads * facts["d_head"]: "coordinate"}.get(gates, "none")
    if majority.layers[-1].get(("attn_scores", "mixes_values")):
        fields["value_residual"] = True
    if (inherited := majority.layers[-1].get(("attn_scores", "inherits"), "none")) != "none":
        fields["residual_attention"] = inherited
    return fields


def _logits(majority: Majority, d_head: int) -> dict[str, Any]:
    """The divisor's row."""
    scale = majority.middle("attn_scores", "divisor")
    for name, row in DIVISORS.items():
        if "ssmax_scale" not in row.uses and abs(scale / row.of(d_head) - 1) <= EXACT:
            return {"attention_scale": name}
    if any(majority.usual("attn_scores", "normed", ("",))):
        return {"attention_scale": "sqrt_d", "qk_gain": math.sqrt(d_head) / scale}
    majority.differs.append(f"its attention logits are divided by {number(scale)}, with heads of {d_head} coordinates")
    return {"attention_scale": min((abs(math.log(abs(scale) / row.of(d_head))), name)
                                   for name, row in DIVISORS.items() if not row.uses)[1]}


def _places(majority: Majority, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Mask and positions."""
    fields: dict[str, Any] = {"causal": facts["mask"] == "causal"}
    if facts["mask"] == "another":
        majority.differs.append("its attention hides keys by a mask that is neither causal nor none")
    turn = facts["turn"]
    if facts["position"] == "another":
        majority.differs.append("its positions are neither rotary angles of one base nor ALiBi's slopes")
    elif facts["position"] == "rotary" and turn is not None:
        fields |= {"position": "rotary", "rope_base": min(max(turn.base, 1.0), 1e8), "rope_fraction": turn.share}
    elif facts["position"] == "alibi":
        fields |= {"position": "alibi"}
    return fields


LIMITED = ("n_layers", "d_model", "n_heads", "head_size", "n_ctx", "batch_size", "mlp_ratio", "n_kv_heads")
@dataclass(frozen=True)
class Twin:
    """The nearest design of ours.

    Args:
        config: it; `predict(twin.config)` is what theory expects of the model.
        distance: how near: the root mean square, over every matrix of every layer and every multiplier of stream and
            branch, of ln(the model's / the twin's), variances as fan_in · mean W²; and, where the model behaves
            otherwise than theory expects of the twin, beside it that of the gaps. 0.1: about 10 % apart.
        unread: a sentence for each thing that could not be read.
        differs: a sentence for each thing in which the model is something that no config can say.
        parts: a sentence for each site at which the model behaves otherwise than the twin, in the order of the
            forward pass, then of the gradients: the first layer that is off, and by which factor. Where there are any,
            `Profile.twin` is None, and no line is drawn.
        model: what the model is called.
    """

    config: Config
    distance: float
    unread: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    model: str = ""

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("nearest design", self.config), ("distance", self.distance)]
        rows += [("could not be read", words) for words in self.unread] + [("differs", words) for words in self.differs]
        rows += [("behaves otherwise", words) for words in self.parts]
        return table(f"twin of {self.model or 'a model'}", (), rows)


def twin_of(layers: Sequence[Facts], source: Source, model: str = "", unread: tuple[str, ...] = ()) -> Twin | None:
    """The twin, from what was read of each block and of the first one's input; None where no branch was seen."""
    if not any((site, "branch") in facts for facts in layers for site in BRANCHES):
        return None
    majority = Majority(layers)
    majority.unread += unread
    fields = {**sizes(majority), **attention(majority), **norms(majority, source.final), **mlp(majority)}
    fields |= source.fields(fields, majority.unread)
    gained = folded(majority, fields)
    defaults = {name: spec.default for name, spec in Config.specs().items()}
    fitted = fit(layers, {**defaults, **fields}, gained)
    fields |= {"residual": fitted.residual, "alpha": fitted.alpha, "scale_rule": fitted.scale_rule, **weights(majority)}
    config = _accepted(majority, fields, fitted, gained)
    if majority.usual("layer", "experts"):
        majority.differs.append("its MLPs are experts among which a router chooses; the twin has one MLP a layer")
    if majority.usual("layer", "attentions", 1) > 1:
        majority.differs.append("its layers have a second attention, such as one to an encoder; the twin has one")
    held = [set(facts.get(("layer", "branches"), ())) for facts in layers]
    if {"attn_out"} in held and {"mlp_out"} in held and 2 * held.count({*BRANCHES}) < len(held):
        majority.parts.append("its attention and its MLPs are layers of their own; each of the twin's has both")
    if majority.usual("attn_scores", "tied"):
        majority.differs.append("its queries and keys have one matrix; the twin has two")
    said = {name: tuple(getattr(majority, name)) for name in ("unread", "differs", "parts")}
    return Twin(config, _distance(layers, config, gained), **said, model=model)


def _accepted(majority: Majority, fields: dict[str, Any], fitted: Fit, folded: Mapping[str, float]) -> Config:
    """The config, within the limits of `Config`."""
    specs = Config.specs()
    for name in LIMITED:
        if name in fields and not specs[name].low <= fields[name] <= specs[name].high:
            near = min(max(fields[name], specs[name].low), specs[name].high)
            given = number(fields[name], 6)
            majority.differs.append(f"its {name} is {given}, which Config has up to {near}: the twin has that")
            fields[name] = near
    config = _made(majority, fields)
    free = 2 if fitted.attention_variance != 1 or fitted.mlp_variance != 1 else int(fitted.init_variance != 1)
    if any(name in "".join(majority.differs) for name in ("d_model", "n_layers")):
        free = max(free, 2)  # fan_in · Var W is kept where the size could not be
    _, *factors = offsets(config, gains(majority.layers, folded), free)
    names = ("init_variance", "attention_variance", "mlp_variance")
    near = {name: min(max(value, 1e-3), 1e3) for name, value in zip(names, factors, strict=True)}
    return config.replace(**near)


def _made(majority: Majority, fields: dict[str, Any]) -> Config:
    """The config of the fields; a refused value is replaced as its error proposes or by its default, and listed."""
    specs, tried = Config.specs(), set()
    while True:
        try:
            return Config(**fields)
        except ConfigError as error:
            changes = [(name, value) for name, value in error.mend.items() if fields.get(name) != value]
            changes += [(name, specs[name].default) for name in fields if str(error).startswith(f"{name} ")]
            changes += [(name, fields[name] // 2) for name in ("n_ctx", "n_layers") if fields[name] > 1]
            name, value = next(change for change in changes if change not in tried)
            tried.add((name, value))
            majority.differs.append(f"{error}: the twin has {name} = {value!r}")
            fields[name] = value


def _distance(layers: Sequence[Facts], config: Config, folded: Mapping[str, float]) -> float:
    """`Twin.distance`: root mean square logarithm of the layers' numbers over the config's."""
    asked, asked_sizes = variances(config), shapes(config)
    gaps = []
    skip, branch, _ = multipliers(config)
    for index, facts in enumerate(layers[: config.n_layers]):
        for name, shape in asked_sizes.items():
            gain = facts.get((name, "variance"), 0.0) * facts.get((name, "shape"), (1, 1))[0] * folded.get(name, 1.0)
            if gain > 0 and asked[name] > 0:
                gaps.append(math.log(gain / (asked[name] * shape[0])))
        for number_, site in enumerate(BRANCHES):
            for part, values in (("skip", skip), ("branch", branch)):
                measured, made = facts.get((site, part), 0.0), values[2 * index + number_]
                if measured > 0 and made > 0:
                    gaps.append(math.log(measured / made))
    return math.sqrt(float(np.mean(np.square(gaps)))) if gaps else math.nan
