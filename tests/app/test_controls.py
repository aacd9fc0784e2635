"""The controls: every field has one, nothing is clamped, a refusal is a sentence and leaves the
last config."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from pydantic import model_validator

from explorer.app.widgets import controls as controls_module
from explorer.app.widgets.controls import DRAG, HELD, Controls, sections
from explorer.app.widgets.slider_steps import FINEST, slider_steps, thinned
from explorer.app.widgets.wording import (
    GPT2_SMALL,
    exclusions,
    in_words,
    options,
    quantity,
    size_in_words,
)
from explorer.choices import Choices
from explorer.config import Config, preset
from explorer.fields import GROUPS, Option, setting
from explorer_race.page.lineup import Plan
from explorer_race.recipe import Recipe

SPECS = Config.specs()
RECORDS = (Config, Recipe, Plan)
SLIDERS = [
    pytest.param(spec, id=f"{record.__name__}.{spec.name}")
    for record in RECORDS
    for spec in record.specs().values()
    if slider_steps(spec)
]


class Page:
    """Controls, and the configs and refusals that they told of."""

    def __init__(self, config: Config | None = None) -> None:
        self.told: list[tuple[Config, str]] = []
        self.controls = Controls(config or Config(), self.read)

    def read(self) -> None:
        self.told.append((self.controls.config, self.controls.refusal))

    def set(self, /, **values: object) -> None:
        """What a browser does: sends the whole of `values`."""
        self.controls.set_state({"values": {**self.controls.values, **values}})


def described() -> dict[str, dict[str, object]]:
    return {field["name"]: field for section in sections(SPECS) for field in section["fields"]}


def names_of_fields(sentence: str) -> set[str]:
    """Names that are Python's, and not the screen's."""
    return set(SPECS) & set(re.findall(r"\w+_\w+", sentence))


def test_every_field_has_exactly_one_control() -> None:
    names = [field["name"] for section in sections(SPECS) for field in section["fields"]]
    assert sorted(names) == sorted(SPECS)


def test_the_named_six_stand_on_top_in_their_order_and_the_rest_in_groups() -> None:
    first, *groups = sections(SPECS)
    assert first["title"] == ""
    assert [field["label"] for field in first["fields"]] == [
        "Depth",
        "Width",
        "Init variance",
        "Norm placement",
        "Residual α",
        "Divide by √d",
    ]
    assert [group["title"] for group in groups] == list(GROUPS)


def test_description_of_a_control_is_plain_data_with_label_symbol_unit_and_rule() -> None:
    depth = described()["n_layers"]
    assert json.loads(json.dumps(depth)) == depth
    assert (depth["label"], depth["symbol"], depth["unit"], depth["look"]) == (
        "Depth",
        "N",
        "layers",
        "slider",
    )
    assert str(depth["description"]).endswith("A whole number between 1 and 1024.")


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("n_layers", "slider"),
        ("alpha", "slider"),
        ("seed", "entry"),
        ("causal", "switch"),
        ("norm_placement", "list"),
        ("attention_scale", "segments"),
        ("activation", "list"),
        ("residual", "list"),
    ],
)
def test_each_kind_of_field_has_its_native_control(name: str, look: str) -> None:
    assert described()[name]["look"] == look


def test_options_carry_formula_and_source() -> None:
    options = {option["value"]: option for option in described()["norm_placement"]["options"]}  # type: ignore[attr-defined]
    assert options["post"] == {
        "value": "post",
        "label": "post",
        "formula": "N(x + F(x))",
        "source": "Post-LN: Vaswani et al. 2017, arXiv 1706.03762, section 3.1",
    }


@pytest.mark.parametrize("spec", SLIDERS)
def test_steps_rises_from_bound_to_bound_through_the_default(spec) -> None:  # type: ignore[no-untyped-def]
    steps = slider_steps(spec)
    assert all(low < high for low, high in pairwise(steps))
    assert (steps[0], steps[-1]) == (spec.low, spec.high)
    assert spec.default in steps
    assert len(steps) <= FINEST + 3


def test_thinned_items_are_evenly_chosen_with_both_ends() -> None:
    assert thinned(range(201), 41) == list(range(0, 201, 5))
    assert thinned([1, 2, 3], 41) == [1, 2, 3]


def test_sizes_of_a_race_are_sizes_of_a_design() -> None:
    specs = Plan.specs()
    for name in ("n_layers", "d_model", "n_heads", "n_ctx", "batch_size", "seed"):
        assert SPECS[name].low <= specs[name].low <= specs[name].high <= SPECS[name].high, name


def test_logarithmic_fields_have_logarithmic_steps() -> None:
    depth, variance = slider_steps(SPECS["n_layers"]), slider_steps(SPECS["init_variance"])
    assert depth[:10] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    ratios = [high / low for low, high in pairwise(variance)]
    assert max(ratios) < 1.09
    assert min(ratios) > 1.05
    assert len(variance) == FINEST + 1


def test_widths_of_the_steps_take_four_and_eight_heads() -> None:
    widths = [width for width in slider_steps(SPECS["d_model"]) if width >= 16]
    assert all(width % 4 == 0 for width in widths)
    assert all(width % 8 == 0 for width in widths if width >= 16)


def test_head_counts_of_the_steps_divide_the_default_width() -> None:
    assert all(Config().d_model % heads == 0 for heads in slider_steps(SPECS["n_heads"]))


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_every_control_moves_the_config(spec) -> None:  # type: ignore[no-untyped-def]
    start = Config(residual="constant", input="correlated", n_layers=2, d_model=64, n_heads=4)
    kinds = {"choice": spec.choices, "switch": (True, False), "text": ("any, at all",)}
    values = kinds.get(spec.kind, (spec.low, spec.high))
    other = next(value for value in values if value != getattr(start, spec.name))
    if spec.name == "loss":
        start, other = start.replace(input="text"), "next_token"
    if spec.name == "n_kv_heads":
        start = start.replace(n_heads=64)
    page = Page(start)
    page.set(**{spec.name: other})
    assert page.told == [(start.replace(**{spec.name: other}), "")]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n_layers": 4096}, "Depth must be a whole number between 1 and 1024; got 4096"),
        ({"n_layers": 2.5}, "Depth must be a whole number between 1 and 1024; got 2.5"),
        ({"n_layers": "twelve"}, "Depth must be a whole number between 1 and 1024; got 'twelve'"),
        ({"n_layers": None}, "Depth must be a whole number between 1 and 1024; got None"),
        ({"init_variance": "12,x"}, "Init variance must be a finite number"),
        ({"d_model": 257}, "Width must be divisible by Heads; got 257 and 4"),
        ({"norm": "batch"}, "Norm must be one of layer, rms, dyt, derf; got 'batch'"),
        ({"temperature": 2}, "temperature is not a field"),
        ({"self": 2}, "self is not a field"),
        ({"n_layers": 1000, "d_model": 2048}, "weights and activations must fit into"),
    ],
)
def test_what_a_browser_sends_is_refused_in_the_screen_s_words_and_the_last_config_stays(
    values: dict[str, object], sentence: str
) -> None:
    page = Page()
    page.set(**values)
    ((config, refusal),) = page.told
    assert sentence in refusal
    assert not names_of_fields(refusal.partition("the fields are")[0])
    assert config == Config()
    # not clamped, not taken back
    assert page.controls.values == {**Config().model_dump(), **values}
    assert page.controls.refused == list(values)


@pytest.mark.parametrize(
    ("start", "chosen", "remedy", "changed"),
    [
        ({}, {"loss": "next_token"}, "Set Input to text", {"input": "text"}),
        (
            {"input": "text", "loss": "next_token"},
            {"input": "gaussian"},
            "Set Loss to linear",
            {"loss": "linear"},
        ),
        ({}, {"d_model": 250}, "Set Heads to 2", {"n_heads": 2}),
        ({}, {"n_heads": 5}, "Set Width to 255", {"d_model": 255}),
        (
            {"scale_rule": "gpt2"},
            {"residual": "scaled_init"},
            "Set Scale rule to LeCun",
            {"scale_rule": "lecun"},
        ),
        ({}, {"n_layers": 4096}, "", {}),
        ({}, {"d_model": 250, "n_heads": 3}, "", {}),
    ],
)
def test_a_refusal_offers_the_one_change_that_fixes_it(
    start: dict[str, Any], chosen: dict[str, Any], remedy: str, changed: dict[str, Any]
) -> None:
    page = Page(Config(**start))
    page.set(**chosen)
    assert page.controls.refusal
    assert page.controls.remedy == remedy
    if remedy:
        page.controls.fix()
        assert page.told[-1] == (Config(**{**start, **chosen, **changed}), "")
        assert page.controls.remedy == ""


def barred(controls: Controls[Any]) -> dict[tuple[str, object], tuple[str, str]]:
    """The excluded options of every field: why, and what to change first."""
    return {
        (name, item["value"]): (item["reason"], item["way"])
        for name, items in controls.excluded.items()
        for item in items
    }


@pytest.mark.parametrize(
    "start",
    [
        Config(),
        Config(n_layers=96, causal=False, norm="dyt"),
        Config(residual="rezero", residual_attention="scores"),
        Config(attention="none", norm_placement="none"),
        Config(position="alibi", causal=True),
        *(preset(name) for name in ("keel", "hyper_connections", "gptj", "completep", "ngpt")),
    ],
    ids=str,
)
def test_an_option_is_excluded_where_the_record_would_refuse_it_and_nowhere_else(
    start: Config,
) -> None:
    refused = {
        (name, value)
        for name, spec in SPECS.items()
        for value in options(spec)
        if not start.accepts(**{name: value})
    }
    excluded = barred(Page(start).controls)
    assert set(excluded) == refused
    for (name, value), (reason, way) in excluded.items():
        page = Page(start)
        page.set(**{name: value})
        assert page.told == [(start, reason)], "a client may send it, and is refused in these words"
        assert SPECS[name].about.label in reason
        assert not names_of_fields(reason)
        assert way == (
            f"first s{page.controls.remedy[1:]}"
            if page.controls.remedy
            else "excluded by other choices"
        )
        if page.controls.remedy:
            page.controls.fix()
            assert page.controls.refusal == ""
            assert getattr(page.controls.config, name) == value


def test_what_is_excluded_follows_the_design_and_not_a_refused_choice() -> None:
    page = Page()
    told = ("Loss = next token needs Input = text; got Input = gaussian", "first set Input to text")
    assert barred(page.controls)["loss", "next_token"] == told
    page.set(loss="next_token")
    assert barred(page.controls)["loss", "next_token"] == told
    page.controls.fix()
    assert not {("loss", "next_token"), ("loss", "linear")} & barred(page.controls).keys()
    assert barred(page.controls)["input", "gaussian"][1] == "first set Loss to linear"
    page.set(causal=True)
    page.set(position="alibi")
    assert barred(page.controls)["causal", False] == (
        "Positions = ALiBi needs Causal mask, as in its paper; got Causal mask = off",
        "first set Positions to none",
    )


def test_a_number_can_exclude_an_option() -> None:
    page = Page()
    assert ("position", "rotary") not in barred(page.controls)
    page.set(d_model=60)
    reason, way = barred(page.controls)["position", "rotary"]
    assert "even number of coordinates" in reason
    assert way == "first set Heads to 3"
    page.set(d_model=64)
    assert ("position", "rotary") not in barred(page.controls)


def test_what_is_excluded_is_asked_once_the_choices_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel, which has a loop."""
    page = Page()
    asked: list[Config] = []

    async def drag() -> None:
        rested = asyncio.Event()

        def ask(config: Config) -> dict[str, Any]:
            asked.append(config)
            rested.set()
            return exclusions(config)

        monkeypatch.setattr(controls_module, "exclusions", ask)
        for width in (64, 68, 76, 60):
            page.set(d_model=width)
        assert ("position", "rotary") not in barred(page.controls), "not yet"
        await rested.wait()

    asyncio.run(drag())
    assert [config.d_model for config in asked] == [60]
    assert ("position", "rotary") in barred(page.controls)


def test_a_slider_that_is_held_rests_later() -> None:
    page = Page()
    assert page.controls.rest == DRAG
    page.controls.set_state({"held": True, "values": {**page.controls.values, "n_layers": 3}})
    assert page.controls.rest == HELD > DRAG
    page.controls.set_state({"held": False})
    assert page.controls.rest == DRAG
    assert page.controls.config.n_layers == 3


class Cut(Choices):
    """A record that has an option for small sizes only."""

    size: float = setting(1.0, "Size", "", "Asked for.", 0.1, 4)
    bounds: str = setting(
        "relative",
        "Bounds",
        "",
        "Of the cut.",
        options=dict.fromkeys(("relative", "absolute"), Option("")),
    )
    corrected: bool = setting(True, "Correct for the cut", "", "Whether.")

    @model_validator(mode="after")
    def _reachable(self) -> Cut:
        if self.bounds == "absolute" and self.corrected and self.size > 0.5:
            raise self.refusal(
                f"{{size}} must be at most 0.5; got {self.size:g}",
                bounds="relative",
                corrected=False,
            )
        return self


def test_any_record_may_exclude_options() -> None:
    (bounds,) = Controls(Cut()).excluded["bounds"]
    assert (bounds["value"], bounds["way"]) == ("absolute", "first set Correct for the cut to off")
    assert bounds["reason"].startswith("Size must be at most 0.5")


def test_what_stands_in_an_entry_is_what_was_accepted() -> None:
    page = Page()
    page.set(n_ctx="1_00", init_variance=" 2.50 ")
    assert (page.controls.values["n_ctx"], page.controls.values["init_variance"]) == (100, 2.5)
    assert page.told[-1] == (Config(n_ctx=100, init_variance=2.5), "")


def test_a_refused_value_can_be_fixed_or_taken_back() -> None:
    page = Page()
    page.set(d_model=250)
    assert page.controls.notes["d_model"] == "refused; still 256"
    page.controls.apply({})
    assert page.told[-1] == (Config(), "")
    assert page.controls.refused == []
    page.set(d_model=250)
    page.set(n_heads=5)
    assert page.told[-1] == (Config(d_model=250, n_heads=5), "")


def test_a_control_that_does_not_matter_is_disabled_and_says_why() -> None:
    page = Page()
    assert "alpha" not in page.controls.disabled
    page.set(residual="rezero")
    assert "alpha" in page.controls.disabled
    assert (
        page.controls.notes["alpha"]
        == "used when residual = constant or scaled skip or looped; it is ReZero"
    )
    page.set(residual="constant")
    assert "alpha" not in page.controls.disabled


def test_a_refused_control_is_never_disabled() -> None:
    """What it was before is of no account: it has to be set right, or back."""
    page = Page(Config(residual="rezero"))
    assert "alpha" in page.controls.disabled
    page.set(alpha="much")
    assert page.controls.refused == ["alpha"]
    assert "alpha" not in page.controls.disabled
    assert page.controls.notes["alpha"].startswith("refused")
    page.controls.apply({})
    assert "alpha" in page.controls.disabled


class Many(Choices):
    """Fields of a group, of which few matter at once."""

    kind: str = setting(
        "plain",
        "Kind",
        "Attention",
        "Kind.",
        options={"plain": Option("plain"), "rotary": Option("rotary", uses=("base",))},
    )
    base: float = setting(1e4, "Base", "Attention", "Base.", 1, 1e6, log=True)
    sink: bool = setting(False, "Sink", "Attention", "Sink.", advanced=True)
    gain: float = setting(1.0, "Gain", "Attention", "Gain.", 0, 9, advanced=True)
    depth: int = setting(3, "Depth", "Attention", "Depth.", 1, 9, advanced=True, pinned=True)
    width: int = setting(3, "Width", "", "Width.", 1, 9, advanced=True)


def test_what_is_not_used_or_rarely_changed_is_folded_until_it_is() -> None:
    controls = Controls(Many())
    assert controls.folded == ["base", "sink", "gain"], "what stands above the groups never is"
    controls.set_state({"values": {**controls.values, "kind": "rotary", "gain": 2.0}})
    assert controls.folded == ["sink"]
    controls.set_state({"values": {**controls.values, "sink": "maybe"}})
    assert (controls.folded, controls.refused) == ([], ["sink"]), "what is refused is seen"
    controls.apply({"kind": "plain", "gain": 1.0})
    assert controls.folded == ["base", "sink", "gain"]
    assert controls.disabled == ["base"]
    controls.remark("gain", "A remark.")
    assert controls.folded == ["base", "sink"]


def test_few_controls_are_drawn_at_the_start() -> None:
    controls = Controls(Config())
    drawn = {
        section["title"]: [
            field["name"] for field in section["fields"] if field["name"] not in controls.folded
        ]
        for section in controls.sections
    }
    assert len(drawn[""]) == 6
    assert max(map(len, drawn.values())) <= 6
    assert sum(map(len, drawn.values())) <= 29, "as many as there were without anything folded"


def test_apply_sets_choices_as_a_person_would() -> None:
    page = Page()
    page.controls.apply({"norm_placement": "post", "n_layers": 24})
    assert page.told == [(Config(norm_placement="post", n_layers=24), "")]
    assert page.controls.values["norm_placement"] == "post"


def test_size_line() -> None:
    assert GPT2_SMALL == 84_934_656
    assert size_in_words(Config()).startswith("9.4 M parameters · 11 % of GPT-2 small's 85 M · ")
    assert size_in_words(Config()).endswith("MB of activations")
    assert [quantity(count) for count in (999, 1000, 10_000)] == ["999", "1.0 k", "10 k"]
    assert Page(Config(n_layers=1, d_model=8)).controls.summary.startswith(
        "768 parameters · 0.0009 % of"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("inverse_sqrt_depth", "1/√depth"),
        ("sqrt_d", "√d"),
        ("next_token", "next token"),
        (True, "on"),
        (0.25, "0.25"),
        (1024, "1024"),
    ],
)
def test_values_in_words(value: object, words: str) -> None:
    assert in_words(value) == words
