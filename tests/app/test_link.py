"""Links: readable, complete both ways, and safe to be given by anybody."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from linked import state
from test_page import set_everything

from benchmarks.goldens import random_design
from explorer.app.dashboard import Dashboard, dashboard
from explorer.app.explore.selections import MATRIX_WORDS
from explorer.app.link.links import LONGEST_SENTENCE, Links, in_a_sentence
from explorer.app.link.params import LONGEST, MOST
from explorer.app.map.plan import NOTHING, MapPart, Plan, over
from explorer.app.page import ExplorePart, Page
from explorer.app.roster import Entry
from explorer.app.tabs import tabs
from explorer.config import Config, preset
from explorer.schemes.preset import PRESETS
from explorer_race.page.lineup import RacePart

LINKS = Links(tabs())
SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=1)


def record(link: str) -> Page:
    """The record of a link that is understood."""
    page, sentences = LINKS.parse(link)
    assert sentences == []
    return page


def design(link: str) -> Config:
    config: Config = record(link).panels["explore"].design
    return config


def linked(config: Config, *pins: Entry) -> str:
    return LINKS.write(Page("explore", {"explore": ExplorePart(config, pins)}))


def test_the_page_as_it_opens_has_no_link() -> None:
    assert LINKS.write(record("")) == ""
    assert design("") == Config()


@pytest.mark.parametrize(
    ("config", "link"),
    [
        (preset("post_ln", n_layers=24), "?design=post_ln&n_layers=24"),
        (Config(alpha=0.5), "?alpha=0.5"),
        (
            Config(init_variance=0.1 + 0.2, causal=True),
            "?init_variance=0.30000000000000004&causal=true",
        ),
    ],
)
def test_a_design_is_said_by_its_name_and_what_differs(config: Config, link: str) -> None:
    assert linked(config) == link
    assert design(link) == config


@pytest.mark.parametrize(
    "sentence",
    ["to be, or not: to be", "100%, n_layers:3 & #?=+", "<b>é</b>%2C", "1e5", "true", "我喜欢猫"],
)
def test_a_sentence_comes_back_wherever_a_design_stands_in_a_link(sentence: str) -> None:
    config = Config(input="sentence", sentence=sentence, n_layers=2)
    assert design(linked(config)) == config
    assert record(linked(config, Entry(config, "one"))).panels["explore"].pins[0].config == config
    link = LINKS.write(Page("map", {"map": MapPart(config, Plan())}))
    assert record(link).panels["map"].design == config


def test_a_sentence_of_a_link_is_refused_in_words_and_the_usual_one_stays() -> None:
    page, sentences = LINKS.parse("?input=sentence&sentence=" + "x" * 40)
    assert sentences == [
        f"design: Sentence must be a text of 2 to 32 printable characters; got '{'x' * 40}'"
    ]
    assert page.panels["explore"].design == Config(input="sentence")


def test_a_person_may_write_labels_and_an_address() -> None:
    assert design("https://example.org/page?depth=3&design=post_ln#top") == preset(
        "post_ln", n_layers=3
    )
    assert design("norm_placement=post") == Config(norm_placement="post")


def random_configs(number: int) -> Iterator[Config]:
    """Designs with some fields drawn at random; those that exclude each other are drawn again."""
    draw = random.Random(0)  # noqa: S311 - a test
    yield from (random_design(draw, 4) for _ in range(number))


def test_any_design_and_any_pin_comes_back_to_the_last_digit() -> None:
    for config in (*map(preset, PRESETS), *random_configs(200)):
        pins = (Entry(config, "a,b:c&d=é %2C+“x”", visible=False, index=4),)
        assert record(linked(config, *pins)).panels["explore"] == ExplorePart(config, pins)


def test_a_whole_page_comes_back_from_its_link() -> None:
    first, second = Dashboard(SMALL), Dashboard(Config(n_layers=1))
    set_everything(first)
    assert second.open_link(first.link) == []
    assert second.link == first.link
    for name in tabs():
        second.show(name)
    second.show(first.opened)
    assert second.link == first.link
    for name in ("race", "map", "explore"):
        assert second.panels[name].part == first.panels[name].part
    for one in (first, second):
        one.close()


def test_a_map_of_one_axis_is_a_link() -> None:
    part = MapPart(SMALL, over("alpha", SMALL))
    assert record(LINKS.write(Page("map", {"map": part}))).panels["map"] == part
    nothing = "?" + state(map={"plan": {"y": "none"}})
    assert record(nothing).panels["map"].plan == Plan(y=NOTHING)


@pytest.mark.parametrize(
    ("link", "sentence", "rest"),
    [
        ("?design=nonesuch", "design must be a named design, such as post_ln; got 'nonesuch'", ""),
        ("?n_layers=0", "design: Depth must be a whole number between 1 and 1024; got 0", ""),
        ("?alpha=nan", "design: Residual α must be a finite number between 0 and 4; got 'nan'", ""),
        ("?n_layers=3&n_layers=4", "n_layers is given 2 times: the last counts", "?n_layers=4"),
        ("?tab=attic", "tab must be one of explore, map, race, lessons, yours; got 'attic'", ""),
        ("?<script>=1", "'<script>' is not a part of a link", ""),
        ("?pin=post", "pin must be a named design, such as post_ln; got 'post'", ""),
        (
            "?pin=post_ln&pin=post_ln",
            "pin 2: This design is pinned already, as “Post-LN”.",
            "?pin=post_ln",
        ),
        ("?state=x", "state must be a JSON object; got 'x'", ""),
        ("?state=[]", "state must be a JSON object; got '[]'", ""),
        ("?" + state(attic={}), "state must be of explore, map, race; got 'attic'", ""),
        ("?" + state(map=3), "map: its state must be an object; got 3", ""),
        (
            "?n_layers=2" + state(explore={"pattern_of": [3, 0]}),
            "explore: layer of the pattern must be a whole number between 1 and 2; got 3",
            "?n_layers=2",
        ),
        (
            "?" + state(explore={"matrix": "W_X"}),
            f"explore: matrix must be one of all, {', '.join(MATRIX_WORDS)}; got 'W_X'",
            "",
        ),
        (
            "?" + state(explore={"pins": [{"config": {"n_layers": 0}}]}),
            "explore: pins 1 config: Depth must be a whole number between 1 and 1024; got 0",
            "",
        ),
        (
            "?" + state(race={"plan": {"steps": "x"}}),
            "race: plan: Steps must be a whole number between 1 and 100000; got 'x'",
            "",
        ),
        (
            "?" + state(race={"selected": 9}),
            "race: selected must be a whole number between 0 and 3; got 9",
            "",
        ),
        (
            "?" + state(map={"plan": {"x": "alpha", "x_from": 5}}),
            "map: plan: Across from must be a finite number between 0 and 4, as Residual α; got 5",
            "",
        ),
        (
            "?" + state(map={"depht": 3}),
            "map: a setting must be one of design, plan; got 'depht'",
            "",
        ),
        (
            "?" + state(explore={"pins": [{"config": {}, "hue": 3}]}),
            "explore: pins 1 hue: unexpected keyword argument; got 3",
            "",
        ),
        (
            "?" + "x" * LONGEST,
            f"a link must have at most {LONGEST:,} characters; got {LONGEST + 1:,}",
            "",
        ),
        (
            "?" + "&".join(f"a{n}=1" for n in range(MOST + 1)),
            f"a link must have at most {MOST} parts; got more",
            "",
        ),
    ],
)
def test_what_is_ignored_is_said(link: str, sentence: str, rest: str) -> None:
    page, sentences = LINKS.parse(link)
    assert sentences == [sentence]
    assert LINKS.write(page) == rest, "all else is as on the page that opens"


def test_one_panel_s_state_is_refused_and_the_others_count() -> None:
    link = "?" + state(race={"plan": {"steps": 0}}, map={"plan": {"x": "alpha"}})
    page, [sentence] = LINKS.parse(link)
    assert sentence.startswith("race: plan: Steps")
    assert page.panels["map"].plan == Plan(x="alpha")
    assert page.panels["race"] == RacePart()


def test_a_named_design_is_pinned_in_the_size_of_the_link_s() -> None:
    page = record("?design=deepnorm&n_layers=48&init_variance=2&pin=post_ln&pin=gpt2")
    pins = page.panels["explore"].pins
    assert [pin.config for pin in pins] == [
        preset("post_ln", n_layers=48),
        preset("gpt2", n_layers=48),
    ]
    assert [pin.name for pin in pins] == ["Post-LN", "GPT-2"]
    assert LINKS.write(page) == (
        "?design=deepnorm&n_layers=48&init_variance=2.0&pin=post_ln&pin=gpt2"
    )


SEEDS = (
    "?design=post_ln&n_layers=24&pin=pre_ln",
    "?tab=lessons&design=rezero",
    "?"
    + state(
        explore={"pins": [{"config": {"n_layers": 2}, "name": "Deep", "visible": False}]},
        race={"contenders": [{"config": {}, "recipe": {"warmup": 300}}], "selected": 0},
    ),
    "?tab=map" + state(map={"design": {"n_layers": 24}, "plan": {"x": "alpha", "x_to": 2}}),
    "?show=depth,norm_placement&panels=explore,race&charts=attention_entropy&embed=1"
    + state(explore={"matrix": "W_Q", "pattern_of": [3, 1]}),
)
PIECES = (
    "",
    "%2C",
    "%00",
    "%ff",
    "+",
    "#",
    "\x00",
    "é",
    "🙂",
    "\"'><img src=x>",
    "-1",
    "1e999",
    "nan",
    "9" * 50,
    "1_000",
    "null",
    "../../etc/passwd",
    "__class__",
    "story",
    "step",
    *sorted({*re.findall(r"\w+|\W", unquote("".join(SEEDS)))}),
)
"""What does not belong there, and the words and signs of all seeds."""


def fuzzed(number: int, seed: int = 0) -> Iterator[str]:
    """Links that somebody has cut, stirred and mixed with what does not belong there."""
    draw = random.Random(seed)  # noqa: S311 - a test
    for _ in range(number):
        text = list(draw.choice(SEEDS)) if draw.random() < 0.8 else []
        for _ in range(draw.randint(1, 8)):
            place = draw.randint(0, len(text))
            text[place : place + draw.choice((0, 0, 1, 5))] = draw.choice(
                (*PIECES, chr(draw.randint(1, 0x2FFF)))
            )
        yield "".join(text)


def test_five_hundred_broken_links() -> None:
    """Whatever a link holds, the record is valid, and its own link says it again."""
    for text in fuzzed(500):
        page, sentences = LINKS.parse(text)
        assert page.open in tabs()
        assert len(in_a_sentence(sentences)) < 4 * LONGEST_SENTENCE
        assert LINKS.parse(LINKS.write(page)) == (page, []), text


@pytest.mark.parametrize(
    "letters", [1, LONGEST_SENTENCE - 1, LONGEST_SENTENCE, LONGEST_SENTENCE + 1, 10**6]
)
def test_a_sentence_is_cut_to_the_longest_that_is_shown(letters: int) -> None:
    said = in_a_sentence(["x" * letters]).removeprefix("Ignored in the link: ").removesuffix(".")
    assert len(said) == min(letters, LONGEST_SENTENCE)
    assert said.endswith("…") == (letters > LONGEST_SENTENCE)


@pytest.mark.parametrize("text", [None, 3, b"?n_layers=3", ["?"]])
def test_what_is_no_text_is_no_link(text: object) -> None:
    assert LINKS.parse(text) == (record(""), [f"a link must be a text; got {text!r}"])


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = dashboard("?n_layers=2&d_model=16&n_heads=2&n_ctx=8&batch_size=1&n_seeds=1&bogus=1")
    yield page
    page.close()


def act(page: Dashboard, *message: str) -> None:
    page.header.handle([*message], [])


def choose(page: Dashboard, **values: object) -> None:
    """What a browser sends when a control was moved."""
    controls = page.panels["explore"].controls
    send(controls, "set", {"values": {**controls.values, **values}})


def send(part: Any, verb: str, content: object) -> None:
    """What a part gets from a browser."""
    part.page._take(part.page, [1, part.number, verb, content], [])


def test_a_link_may_start_a_page_and_what_it_ignores_is_said(page: Dashboard) -> None:
    assert page.panels["explore"].controls.config == SMALL
    assert page.header.said == "Ignored in the link: 'bogus' is not a part of a link."
    assert page.header.link is None, "no browser has asked for it"
    act(page, "shown", "")
    assert page.header.link == page.link
    with pytest.raises(TypeError, match="start must be a Config"):
        dashboard(3)  # type: ignore[arg-type]


def test_a_kernel_that_was_started_for_a_link_begins_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "QUERY_STRING", "n_layers=2&d_model=16&n_heads=2&n_ctx=8&batch_size=1&n_seeds=1"
    )
    page = dashboard()
    assert page.panels["explore"].controls.config == SMALL
    page.close()


def test_an_address_is_opened_once_and_is_no_step(page: Dashboard) -> None:
    act(page, "shown", "?n_layers=3")
    assert page.header.link == "?n_layers=3"
    assert not page.header.undoes
    act(page, "shown", "?n_layers=9")  # another view of the same page
    assert page.header.link == "?n_layers=3"


def test_undo_redo_and_reset_go_over_everything(page: Dashboard) -> None:
    start = page.link
    act(page, "shown", "")
    choose(page, norm_placement="post")
    send(page.panels["explore"].comparison.box, "act", ["pin"])
    links = dict(parse_qsl(page.header.link.removeprefix("?")))
    assert links["pin"] == "post_ln"
    act(page, "undo")
    assert "pin" not in page.link
    assert len(page.panels["explore"].comparison.pins) == 0
    act(page, "undo")
    assert page.link == start
    assert not page.header.undoes
    act(page, "undo")
    assert page.link == start
    act(page, "redo")
    act(page, "redo")
    assert dict(parse_qsl(page.link.removeprefix("?"))) == links
    assert not page.header.redoes
    act(page, "reset")
    assert page.link == page.header.link == ""
    act(page, "undo")
    assert dict(parse_qsl(page.link.removeprefix("?"))) == links


def test_messages_that_make_no_sense_are_ignored(page: Dashboard) -> None:
    before = page.link
    for message in (
        "undo",
        ["undo", 3],
        ["open"],
        ["open", 3],
        {"open": "?"},
        None,
        7,
        ["shown", None],
    ):
        page.header.handle(message, [])
        assert page.link == before, message


def test_a_name_travels_as_text(page: Dashboard) -> None:
    name = "<b>a,b:c</b> & %2C"
    link = state(explore={"pins": [{"config": {"alpha": 0.5}, "name": name}]})
    assert page.open_link(f"?{link}") == []
    assert [pin.name for pin in page.panels["explore"].comparison.pins] == [name]
