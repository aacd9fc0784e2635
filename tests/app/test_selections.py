"""Lists and sliders beside the charts: what is offered, what is ignored or refused, and the list of
named designs."""

from __future__ import annotations

import pytest

from explorer.app.explore.selections import (
    LayerSelection,
    NamedDesigns,
    PatternSelection,
    Selection,
)
from explorer.app.widgets.controls import choice
from explorer.config import Config, changes_to, matching, preset
from explorer.glossary import cited
from explorer.schemes.preset import GROUPS, PRESETS, Preset


def test_the_list_has_every_preset_with_its_words_and_source() -> None:
    (field,) = NamedDesigns(Config(), lambda changes: None).sections[0]["fields"]
    options = {option["value"]: option for option in field["options"]}
    assert set(options) == {"custom", *PRESETS}
    for name, row in PRESETS.items():
        assert (options[name]["label"], f"{options[name]['formula']}.") == (row.title, row.words)
        assert options[name]["source"].split("\nDiffers: ") == [
            part for part in (cited(row.source), row.differs) if part
        ]
        assert all(
            part in options[name]["find"]
            for part in (name, row.title, row.words, row.source, row.aliases)
        )
    groups = [option["group"] for option in options.values() if "group" in option]
    assert list(dict.fromkeys(groups)) == [words for words in GROUPS.values() if words in groups], (
        "each group once"
    )
    assert groups[0] == "Real models"
    assert "group" not in options["custom"], "which is shown, and not offered"


def test_it_follows_the_controls() -> None:
    picked: list[dict[str, object]] = []
    designs = NamedDesigns(preset("bert"), picked.append)
    assert designs.values == {"preset": "bert"}
    designs.follow(preset("bert", causal=True))
    assert designs.values == {"preset": "custom"}
    designs.follow(Config(n_layers=3))
    assert designs.values == {"preset": "pre_ln"}
    assert picked == [], "to follow is not to choose"


def test_a_choice_gives_every_field_of_the_design() -> None:
    config = Config(alpha=0.5, causal=True, n_layers=5)
    picked: list[dict[str, object]] = []
    designs = NamedDesigns(config, picked.append)
    designs.set_state({"values": {"preset": "t5"}})
    assert config.replace(**picked[0]) == preset("t5", n_layers=5)


def test_a_choice_says_what_it_changed_and_nothing_that_does_not_matter() -> None:
    config = Config(norm="rms", d_model=64)
    designs = NamedDesigns(config, lambda changes: designs.follow(config.replace(**changes)))
    designs.set_state({"values": {"preset": "rezero"}})
    assert designs.changes == {
        "preset": [["Norm placement", "pre", "none"], ["Residual", "constant", "ReZero"]]
    }
    designs.follow(preset("rezero", d_model=128))
    assert designs.changes, "it is ReZero still"
    designs.follow(preset("rezero", causal=True))
    assert designs.changes == {}


def test_a_size_that_a_preset_sets_is_part_of_every_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PRESETS, "wide", Preset("Wide", "model", "A wide MLP.", {"mlp_ratio": 8}, "nobody")
    )
    assert changes_to("wide")["mlp_ratio"] == 8
    assert changes_to("pre_ln")["mlp_ratio"] == 4
    assert matching(Config(mlp_ratio=8, n_layers=3)) == "wide"
    assert "n_layers" not in changes_to("wide")


@pytest.mark.parametrize("nonsense", ["custom", "no such", 3, None, ["post_ln"], {}])
def test_what_is_no_preset_changes_nothing(nonsense: object) -> None:
    picked: list[dict[str, object]] = []
    designs = NamedDesigns(Config(), picked.append)
    designs.set_state({"values": {"preset": nonsense}})
    assert picked == []
    assert designs.values == {"preset": "pre_ln"}


def test_a_list_has_only_what_it_offers() -> None:
    heard: list[str] = []
    fruit = Selection("Fruit", lambda: heard.append(fruit.chosen["fruit"]))
    rows = [{"value": name, "label": name.title()} for name in ("apple", "pear")]
    fruit.offer([choice("fruit", "Fruit", "A fruit.", rows, "apple")], fruit="apple")
    for value in ("pear", "plum", None, ["pear"], 0):
        fruit.set_state({"values": {"fruit": value}})
        assert fruit.values == {"fruit": "pear"}
    assert (heard, fruit.refusal) == (["pear"], "")
    fruit.offer([choice("fruit", "Fruit", "A fruit.", rows[:1], "apple")], fruit="apple")
    assert (heard, fruit.values) == (["pear"], {"fruit": "apple"}), "to offer less is not to choose"


def test_a_number_out_of_range_is_refused_until_it_is_taken_back() -> None:
    heard: list[str] = []
    pattern = PatternSelection(
        Config(n_layers=3, d_model=16, n_heads=2), lambda: heard.append(pattern.refusal)
    )
    pattern.set_state({"values": {"layer": 9, "head": 2}})
    assert pattern.refused == ["layer"]
    assert pattern.pattern_of == (1, 0)
    pattern.show()
    assert (pattern.values, pattern.refused) == ({"layer": 1, "head": 1}, [])
    assert heard == ["Layer must be a whole number between 1 and 3; got '9'", ""]
    pattern.set_state({"values": {"layer": 3, "head": 2}})
    pattern.fit(Config(n_layers=2, d_model=16, n_heads=1))
    assert pattern.pattern_of == (2, 0)


def test_the_layer_of_tokens_stays_the_last_until_another_is_chosen() -> None:
    layer = LayerSelection(Config(n_layers=3, d_model=16, n_heads=2), lambda: None)
    assert (layer.value, layer.values) == (0, {"layer": 3})
    layer.fit(Config(n_layers=5, d_model=16, n_heads=2))
    assert (layer.value, layer.values) == (0, {"layer": 5})
    layer.set_state({"values": {"layer": 2}})
    layer.fit(Config(n_layers=4, d_model=16, n_heads=2))
    assert (layer.value, layer.values) == (2, {"layer": 2})
    layer.fit(Config(n_layers=1, d_model=16, n_heads=2))
    assert (layer.value, layer.values) == (0, {"layer": 1})
    layer.set_state({"values": {"layer": 2}})
    assert layer.refusal == "Layer must be a whole number between 1 and 1; got '2'"
