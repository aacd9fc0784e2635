"""Links: readable, complete both ways, and safe to be given by anybody."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
from test_page import set_everything

from benchmarks.goldens import random_design
from explorer.app.dashboard import PANELS, Dashboard, dashboard
from explorer.app.explore.selections import MATRIX_WORDS
from explorer.app.link.links import LONGEST_SENTENCE, Links, in_a_sentence
from explorer.app.link.params import LONGEST, MOST
from explorer.app.map.plan import FIELDS, NOTHING, MapPart, Plan, over
from explorer.app.page import ExplorePart, Page
from explorer.app.roster import Entry
from explorer.config import Config, preset
from explorer.schemes.preset import PRESETS

LINKS = Links(tuple(PANELS))
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
        (preset("post_ln", n_layers=24), "?design=post_ln&n_layers=24&v=1"),
        (Config(alpha=0.5), "?alpha=0.5&v=1"),
        (
            Config(init_variance=0.1 + 0.2, causal=True),
            "?init_variance=0.30000000000000004&causal=true&v=1",
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
    for name in PANELS:
        second.show(name)
    second.show(first.opened)
    assert second.link == first.link
    for name in ("race", "map", "explore"):
        assert second.panels[name].part == first.panels[name].part
    for one in (first, second):
        one.close()


def test_a_map_of_one_axis_is_a_link() -> None:
    part = MapPart(SMALL, over("alpha", SMALL))
    link = LINKS.write(Page("map", {"map": part}))
    assert "map.x=alpha&map.x_from=0.0&map.x_to=1.5&map.y=none" in link
    assert record(link).panels["map"] == part
    assert record("?map.y=none").panels["map"].plan == Plan(y=NOTHING)


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ("?design=nonesuch", "design must be a named design, such as post_ln; got 'nonesuch'"),
        ("?n_layers=0", "design: Depth must be a whole number between 1 and 1024; got 0"),
        ("?alpha=nan", "design: Residual α must be a finite number between 0 and 4; got 'nan'"),
        ("?n_layers=3&n_layers=4", "n_layers is given 2 times: the last counts"),
        ("?tab=attic", "tab must be one of explore, map, race, lessons, yours; got 'attic'"),
        ("?<script>=1", "'<script>' is not a part of a link"),
        ("?pin=post_ln,depht:3", "pin 1: 'depht:3' is not understood"),
        ("?attic.draws=-1", "'attic.draws' is not a part of a link"),
        ("?race.steps=x", "race: Steps must be a whole number between 1 and 100000; got 'x'"),
        ("?n_layers=2&layer=3", "layer must be a whole number between 1 and 2; got 3"),
        ("?head=two", "head must be a whole number between 0 and 3; got 'two'"),
        ("?matrix=W_X", f"matrix must be one of all, {', '.join(MATRIX_WORDS)}; got 'W_X'"),
        ("?sweep=alpha:kurtosis", "'sweep' is not a part of a link"),
        ("?map.x=none", f"map: Across must be one of {', '.join(FIELDS)}; got 'none'"),
        ("?pin=post_ln,name:a&pin=pre_ln,name:a", "pin 2: another pin is called “a”"),
        ("?pin=post_ln&pin=post_ln", "pin 2: This design is pinned already, as “Post-LN”."),
        ("?map.x_count=61", "map: Values across must be a whole number between 2 and 60; got 61"),
        (
            "?map.x=alpha&map.x_from=5",
            "map: Across from must be a finite number between 0 and 4, as Residual α; got 5",
        ),
        (
            "?map.design=nonesuch",
            "map.design must be a named design, such as post_ln; got 'nonesuch'",
        ),
        ("?map.design=,depht:3", "map.design: 'depht:3' is not understood"),
        ("?race.selected=9", "race.selected must be a whole number between 0 and 3; got 9"),
        ("?v=2&n_layers=3", "v, the link's version, must be 1; got '2'"),
        (
            "?" + "x" * LONGEST,
            f"a link must have at most {LONGEST:,} characters; got {LONGEST + 1:,}",
        ),
        (
            "?" + "&".join(f"a{n}=1" for n in range(MOST + 1)),
            f"a link must have at most {MOST} parts; got more",
        ),
    ],
)
def test_what_is_ignored_is_said(link: str, sentence: str) -> None:
    page, sentences = LINKS.parse(link)
    assert sentences == [sentence]
    rest = {
        "?n_layers=3&n_layers=4": "?n_layers=4&v=1",
        "?pin=post_ln,depht:3": "?pin=post_ln&v=1",
        "?map.x=alpha&map.x_from=5": "?map.x=alpha&v=1",
        "?n_layers=2&layer=3": "?n_layers=2&v=1",
        "?pin=post_ln,name:a&pin=pre_ln,name:a": "?pin=post_ln,name:a&pin=pre_ln&v=1",
        "?pin=post_ln&pin=post_ln": "?pin=post_ln&v=1",
        "?map.design=nonesuch": "?map.design=&v=1",
        "?map.design=,depht:3": "?map.design=&v=1",
    }.get(link, "")
    assert LINKS.write(page) == rest, "all else is as on the page that opens"


@pytest.mark.parametrize(
    ("link", "rest", "title"),
    [
        (
            "?tab=06_attention_scale&06_attention_scale.d_head=4&n_layers=3",
            "?tab=lessons&n_layers=3&v=1",
            "Why divide by √d",
        ),
        (
            "?tab=13_gated_mlp_and_rotary&13_gated_mlp_and_rotary.width=64",
            "?tab=lessons&v=1",
            "Gates and rotary positions",
        ),
        (
            "?tab=11_warmup&lab=02_second_moment&07_residual.alpha=0.5",
            "?tab=lessons&v=1",
            "Warm-up",
        ),
        ("?lab=race&race.steps=300", "?race.steps=300&v=1", ""),
        ("?tab=depth&lab=07_residual", "?tab=lessons&v=1", ""),
        ("?lab=07_residual&tab=race", "?tab=race&v=1", ""),
    ],
)
def test_a_labs_link_opens_the_lessons_and_says_which_it_is(
    link: str, rest: str, title: str
) -> None:
    page, sentences = LINKS.parse(link)
    assert LINKS.write(page) == rest
    assert [sentence.split("“")[1].split("”")[0] for sentence in sentences] == [title] * bool(title)


PIECES = (
    "",
    "?",
    "&",
    "=",
    ",",
    ":",
    "%",
    "%2C",
    "%00",
    "%ff",
    "+",
    "#",
    "\x00",
    "é",
    "🙂",
    "<script>alert(1)</script>",
    "\"'><img src=x>",
    "-1",
    "1e999",
    "nan",
    "9" * 50,
    "0x10",
    "1_000",
    "true",
    "null",
    "None",
    "../../etc/passwd",
    "__class__",
    "{}",
    "design",
    "pin",
    "racer",
    "tab",
    "lab",
    "view",
    "show",
    "panels",
    "embed",
    "v",
    "story",
    "step",
    "hue",
    "name",
    "hidden",
    "n_layers",
    "n_heads",
    "norm_placement",
    "race.steps",
    "01_sampling.cut",
    "post_ln",
    "gpt2",
    "matrix",
    "layer",
    "statistic",
    "map.design",
    "map.x",
    "map.y_from",
    "map.compute",
    "trained",
    "alpha",
)
SEEDS = (
    "?design=post_ln&n_layers=24&pin=pre_ln,n_layers:48,name:Deep,hidden,hue:3&v=1",
    "?tab=11_warmup&11_warmup.steps=30&lab=02_second_moment&v=1",
    "?tab=lessons&design=rezero&v=1",
    "?racer=post_ln,warmup:300,name:a&racer=gpt2,optimizer:muon&race.steps=40&race.selected=1&v=1",
    "?tab=map&map.design=post_ln,n_layers:24&map.x=alpha&map.x_from=0.0&map.x_to=2.0&map.compute=theory&v=1",
    "?show=depth,norm_placement&panels=explore,race&charts=attention_entropy&embed=1&matrix=W_Q&layer=3&head=1&v=1",
)


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
        assert page.open in PANELS
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
    assert page.header.link == "?n_layers=3&v=1"
    assert not page.header.undoes
    act(page, "shown", "?n_layers=9")  # another view of the same page
    assert page.header.link == "?n_layers=3&v=1"


def test_undo_redo_and_reset_go_over_everything(page: Dashboard) -> None:
    start = page.link
    act(page, "shown", "")
    choose(page, norm_placement="post")
    send(page.panels["explore"].comparison.box, "act", ["pin"])
    links = dict(parse_qsl(page.header.link.removeprefix("?")))
    assert links["pin"].startswith("post_ln,")
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


@pytest.mark.parametrize(
    "message",
    [
        "undo",
        ["undo", 3],
        ["open"],
        ["open", 3],
        {"open": "?"},
        None,
        7,
        ["shown", None],
    ],
)
def test_messages_that_make_no_sense_are_ignored(page: Dashboard, message: object) -> None:
    before = page.link
    page.header.handle(message, [])
    assert page.link == before


def test_a_name_travels_as_text(page: Dashboard) -> None:
    name = "<b>a,b:c</b> & %2C"
    assert page.open_link(f"?pin=post_ln,name:{quote(quote(name))}") == []
    assert [pin.name for pin in page.panels["explore"].comparison.pins] == [name]
