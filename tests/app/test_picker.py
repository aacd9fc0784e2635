"""The list of named designs: it follows the controls, and sets them."""

from __future__ import annotations

import pytest

from explorer.app.explore.picker import Picker
from explorer.config import Config
from explorer.presets import PRESETS, preset


def test_the_list_has_every_preset_with_its_words_and_source() -> None:
    (field,) = Picker(Config()).sections[0]["fields"]
    options = {option["value"]: option for option in field["options"]}
    assert set(options) == {"custom", *PRESETS}
    for name, row in PRESETS.items():
        assert (options[name]["label"], options[name]["formula"]) == (row.title, row.words)
        assert options[name]["source"] == (f"{row.source}. {row.differs}" if row.differs else row.source)


def test_it_follows_the_controls() -> None:
    picked: list[dict[str, object]] = []
    picker = Picker(preset("bert"), picked.append)
    assert picker.values == {"preset": "bert"}
    picker.follow(preset("bert", causal=True))
    assert picker.values == {"preset": "custom"}
    picker.follow(Config(n_layers=3))
    assert picker.values == {"preset": "pre_ln"}
    assert picked == [], "to follow is not to choose"


def test_a_choice_gives_every_field_of_the_design() -> None:
    config = Config(alpha=0.5, causal=True, n_layers=5)
    picked: list[dict[str, object]] = []
    picker = Picker(config, picked.append)
    picker.set_state({"values": {"preset": "t5"}})
    assert config.replace(**picked[0]) == preset("t5", n_layers=5)


@pytest.mark.parametrize("nonsense", ["custom", "no such", 3, None, ["post_ln"], {}])
def test_what_is_no_preset_changes_nothing(nonsense: object) -> None:
    picked: list[dict[str, object]] = []
    picker = Picker(Config(), picked.append)
    picker.set_state({"values": {"preset": nonsense}})
    assert picked == []
    assert picker.values == {"preset": "pre_ln"}
