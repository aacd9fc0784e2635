"""`Config`: one experiment, its choices validated together, frozen and hashable; and `preset`, a
config by its name.

`departures` says how a config differs from the named designs, and `matching` which of them it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache, lru_cache
from typing import Any

from pydantic import model_validator

from explorer.choices import ConfigError
from explorer.design import Design, resolve
from explorer.display import must_be, shown
from explorer.limits import Sizes, excess, sizes
from explorer.schemes.data import INPUTS
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.schemes.placement import PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS
from explorer.schemes.scale import SCALE_RULES
from explorer.settings import Settings
from explorer.translation import TranslatedError

__all__ = ["Config", "ConfigError", "preset"]

LEAST_CAP = 0.01
"""The least soft cap: below it all logits are the same."""


def heads_of(width: int, most: int) -> int:
    """The largest number of heads, up to `most`, that divides a width."""
    return next(heads for heads in range(min(most, width), 0, -1) if width % heads == 0)


class Config(Settings):
    """One experiment on one Transformer: its sizes, its initialization, its design, its input and
    its loss.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or fields that exclude
            each other.

    Example:
        >>> config = ex.Config(n_layers=24, norm_placement="post")
        >>> config.d_model, config.changed
        (256, {'n_layers': 24, 'norm_placement': 'post'})
        >>> config
        Config(n_layers=24, norm_placement='post')
    """

    @model_validator(mode="before")
    @classmethod
    def _as_long_as_its_sentence(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """A sentence sets the number of tokens; one that is refused for its length leaves it as it
        is."""
        specs = cls.specs()
        kind, sentence = (fields.get(name, specs[name].default) for name in ("input", "sentence"))
        if not isinstance(sentence, str) or not isinstance(kind, str) or kind not in INPUTS:
            return fields
        fits = specs["sentence"].low <= len(sentence) <= specs["sentence"].high
        return (
            {**fields, "n_ctx": len(sentence)}
            if fits and "sentence" in INPUTS[kind].uses
            else fields
        )

    @model_validator(mode="after")
    def _fields_agree(self) -> Config:
        design = Design(self)
        if not self.head_size and self.d_model % self.n_heads:
            raise self.refusal(
                "{d_model} must be divisible by {n_heads}; got {d_model:} and {n_heads:}",
                n_heads=heads_of(self.d_model, self.n_heads),
                d_model=max(self.n_heads, self.d_model - self.d_model % self.n_heads),
            )
        if self.n_heads % self.kv_heads:
            raise self.refusal(
                "{n_heads} must be divisible by {n_kv_heads}; got {n_heads:} and {n_kv_heads:}",
                n_kv_heads=heads_of(self.n_heads, self.n_kv_heads),
                n_heads=self.n_kv_heads,
            )
        if not design.unique:
            raise self.refusal(
                "{n_layers} must be divisible by {n_loops}; got {n_layers:} and {n_loops:}",
                n_loops=math.gcd(self.n_layers, self.n_loops),
                n_layers=max(self.n_loops, self.n_layers - self.n_layers % self.n_loops),
            )
        if design.predicts_text and (not design.reads_text or design.sentence):
            raise self.refusal(
                "{loss=} needs {input=text}; got {input=}", input="text", loss="linear"
            )
        powers = PARAMETRIZATIONS[self.parametrization].powers
        if design.tied and powers["input"] != powers["output"]:
            raise self.refusal(
                "{readout=} needs {parametrization=standard} or ntk, because embedding and readout have "
                "rates of their own; got {parametrization=}",
                parametrization="standard",
                readout="separate",
            )
        for field, height in (("logit_cap", self.logit_cap), ("output_cap", self.output_cap)):
            if 0 < height < LEAST_CAP:
                values = {"least": LEAST_CAP, "height": f"{height:g}"}
                raise self.refusal(
                    "{field} must be 0 or at least {least}; got {height}",
                    {"field": self.field_name(field), **values},
                )
        if design.inherits and not design.attends:
            raise self.refusal(
                "{residual_attention} must be none where {attention=}; got {residual_attention=}",
                residual_attention="none",
                attention="softmax",
            )
        self._agree_with_norm(design)
        self._agree_with_residual(design)
        self._agree_with_attention(design)
        self._agree_with_stream(design)
        if design.rotates and (design.rotated % 2 or not design.rotated):
            fewer = heads_of(max(self.d_model // 2, 1), self.n_heads)
            raise self.refusal(
                "{position=} needs an even number of coordinates of each head to turn; "
                "got {turned} of {d_head} ({rope_fraction=})",
                {"turned": design.rotated, "d_head": self.d_head},
                position="none",
                **({"n_heads": fewer} if self.d_head % 2 else {"rope_fraction": 1.0}),
            )
        if design.slopes and not self.causal:
            raise self.refusal(
                "{position=} needs {causal}, as in its paper; got {causal=}",
                position="none",
                causal=True,
            )
        if refused := excess(design):
            raise self.refusal(*refused)
        return self

    def _agree_with_norm(self, design: Design) -> None:
        if design.final_norm and not PLACEMENTS[self.norm_placement].normalizes:
            raise self.refusal(
                "{final_norm=} needs a {norm_placement} other than {norm_placement:}; got "
                "{norm_placement=}",
                final_norm="design",
                norm_placement="pre",
            )
        if design.point and self.qk_norm:
            raise self.refusal(
                "{qk_norm=} needs a {norm} that divides, because it is to set a head's length; got "
                "{norm=}",
                norm="rms",
                qk_norm=False,
            )
        if design.point and any(place.within for place in design.kinds):
            raise self.refusal(
                "{norm_placement=} needs a {norm} that divides, because it stands within a branch; got "
                "{norm=}",
                norm="rms",
                norm_placement="pre",
            )

    def _agree_with_residual(self, design: Design) -> None:
        places, row = design.kinds, RESIDUALS[self.residual]
        if not row.plain and any((place.skip, place.branch) != (1, 1) for place in places):
            raise self.refusal(
                "{norm_placement=} needs {residual=constant}, because it weighs stream and branch "
                "itself; got {residual=}",
                residual="constant",
                norm_placement="pre",
            )
        if row.profiled and not all(place.has("sum") for place in places):
            raise self.refusal(
                "{residual=} needs a {norm_placement} with a norm on each sum, without which the "
                "factors multiply; got {norm_placement=}",
                norm_placement="post",
                residual="admin",
            )
        starts_as_zero = 0 in design.rule.drawn.values()
        if starts_as_zero and design.scales_forward:
            raise self.refusal(
                "{residual=} needs {parametrization=standard} or mup, because a weight that is "
                "multiplied by 0 never learns; got {parametrization=}",
                parametrization="standard",
                residual="constant",
            )
        if starts_as_zero and any(place.has("output") for place in places):
            raise self.refusal(
                "{residual=} needs a {norm_placement} with no norm after the branch, which starts as "
                "zero; got {norm_placement=}",
                norm_placement="pre",
                residual="constant",
            )
        if row.shrinks_last and SCALE_RULES[self.scale_rule].shrinks_last:
            raise self.refusal(
                "{residual=} needs another {scale_rule} than {scale_rule:}, which shrinks W_O "
                "and W_out already; got {scale_rule=}",
                scale_rule="lecun",
                residual="constant",
            )
        if design.differs_by_layer and (design.copied or design.scales_forward):
            field, value = (
                ("layer_weights", "independent")
                if design.copied
                else ("parametrization", "standard")
            )
            raise self.refusal(
                "{scale_rule=} needs {needed}, because σ differs from layer to layer; got {given}",
                {
                    "needed": self.field_name(field, value),
                    "given": self.field_name(field, getattr(self, field)),
                },
                **{field: value},
                scale_rule="gpt2",
            )
        if PARAMETRIZATIONS[self.parametrization].branch.depth and not row.plain:
            raise self.refusal(
                "{parametrization=} needs {residual=constant}, because it weighs the branches itself; "
                "got {residual=}",
                residual="constant",
                parametrization="mup",
            )

    def _agree_with_attention(self, design: Design) -> None:
        sinks = design.sink.logit is not None
        if sinks and design.slopes:
            raise self.refusal(
                "{sink=} needs another {position}, for no paper has both; got {position=}",
                position="none",
                sink="none",
            )
        if (
            design.attends
            and self.value_residual
            and any(place.has("values") for place in design.kinds)
        ):
            raise self.refusal(
                "{value_residual=} needs a {norm_placement} with no norm on values; got "
                "{norm_placement=}",
                norm_placement="pre",
                value_residual=False,
            )
        for field, on in (("attention_gate", design.gates), ("sink", sinks)):
            if on and any(place.has("last") for place in design.sublayers[::2]):
                raise self.refusal(
                    "{field} needs a {norm_placement} with no norm before W_O; got {norm_placement=}",
                    {"field": self.field_name(field, getattr(self, field))},
                    norm_placement="pre",
                    **{field: "none"},
                )

    def _agree_with_stream(self, design: Design) -> None:
        rule, places = design.stream, design.kinds
        if (rule.parallel or rule.mixes) and any(place.has("skip", "sum") for place in places):
            raise self.refusal(
                "{stream=} needs a {norm_placement} with no norm on the sum; got {norm_placement=}",
                norm_placement="pre",
                stream="one",
            )
        if rule.parallel and not design.adds_to_whole_stream:
            raise self.refusal(
                "{stream=} needs a {residual} that adds to the stream as it is; got {residual=}",
                residual="constant",
                stream="one",
            )
        if rule.mixes and not all(place.has("input") for place in places):
            raise self.refusal(
                "{stream=} needs a {norm_placement} with a norm before each branch; got "
                "{norm_placement=}",
                norm_placement="pre",
                stream="one",
            )
        if rule.mixes and not RESIDUALS[self.residual].plain:
            raise self.refusal(
                "{stream=} needs {residual=constant}, because it adds in its own way; got {residual=}",
                residual="constant",
                stream="one",
            )

    @property
    def design(self) -> Design:
        """The config resolved, sublayer by sublayer."""
        return resolve(self)

    @property
    def sizes(self) -> Sizes:
        """Numbers of weights and bytes."""
        return sizes(self.design)


def preset(name: str, **choices: Any) -> Config:
    """The config of a named design.

    Args:
        name: a key of `PRESETS`.
        choices: any other fields, such as `n_layers`.
    Raises:
        TypeError: the name is not a str.
        ValueError: there is no such preset.
        ConfigError: the choices are refused.

    Example:
        >>> ex.preset("post_ln", n_layers=24)
        Config(n_layers=24, norm_placement='post')
    """
    if must_be(str, "name", name) not in PRESETS:
        near = ", ".join(PRESETS.near(name))
        if near:
            raise TranslatedError(
                "preset must be a name in PRESETS, such as {near}; got {name}",
                near=near,
                name=shown(name),
            )
        raise TranslatedError(
            "preset must be one of {names}; got {name}", names=", ".join(PRESETS), name=shown(name)
        )
    return Config(**{**PRESETS[name].changes, **choices})


# How a config differs from the named designs: which of them it is, and in which fields it is
# another.

SETTING = ("Size", "Input and loss")
"""Groups of fields that are the experiment's, not the design's: a preset leaves them alone, but
for those that it names."""


def design_fields() -> list[str]:
    """The fields that make a design: every choice but sizes, input, loss and seeds, and of those
    what a preset sets."""
    preset_fields = {name for row in PRESETS.values() for name in row.changes}
    return [
        name
        for name, spec in Config.specs().items()
        if spec.about.group not in SETTING or name in preset_fields
    ]


def changes_to(name: str) -> dict[str, object]:
    """Every field of a design, as the preset of that name has it."""
    target = _target(name)
    return {field: getattr(target, field) for field in design_fields()}


def matching(config: Config) -> str:
    """Name of the preset that a config equals, apart from size and input; empty where there is
    none."""
    return next((name for name, fields in departures(config).items() if not fields), "")


def differences(config: Config, other: Config, among: Collection[str] = ()) -> list[str]:
    """The fields that two configs differ in, those that matter in neither left out; among all when
    left out."""
    idle = config.unmet
    return [
        name
        for name in among or Config.specs()
        if getattr(config, name) != getattr(other, name)
        and not (name in idle and name in other.unmet)
    ]


def departures(config: Config) -> dict[str, list[str]]:
    """By preset, the fields of a design in which a config is not that preset."""
    return _departures(config, tuple(PRESETS))


@lru_cache(maxsize=256)
def _departures(config: Config, known: tuple[str, ...]) -> dict[str, list[str]]:
    """`departures` from the presets that are known, kept: a page asks again at every change."""
    fields = design_fields()
    return {name: differences(config, _target(name), fields) for name in known}


@cache
def _target(name: str) -> Config:
    return preset(name)
