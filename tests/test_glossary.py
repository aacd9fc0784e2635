"""The glossary: every symbol of the page has its row, and rows, papers and usual values are what
they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import explorer
from explorer.config import Config, preset
from explorer.figures import BY_CHOICE, FIGURES, row_of
from explorer.figures.why import ALIASES, LAWS, WHYS, why
from explorer.figures.words import NOTATION, linked
from explorer.glossary import HOSTS, LESSONS, PAPERS, ROWS, TERMS, cited, marks, term_of
from explorer.schemes.preset import PRESETS
from explorer.theory import predict
from explorer.vocabulary import VOCABULARY
from explorer_race.figures import CURVES
from explorer_race.history import TRAINING
from explorer_race.maps import MAPS
from explorer_race.recipe import Recipe

PACKAGE = Path(explorer.__file__).parent
RECORDS = (Config, Recipe)
MARKS = marks()
SYMBOL = re.compile(
    rf"(?<![\w'’])({'|'.join(map(re.escape, MARKS))})[²′]{{0,2}}(?![\w(])|{NOTATION.pattern}"
)
"""A symbol, or a formula with sub- and superscripts, within which there is none; as in
`app/widgets/glossary.js`."""
SPECS = {
    f"{record.__name__}.{name}": spec for record in RECORDS for name, spec in record.specs().items()
}

PLAIN = {
    *"xyz",  # a signal, an output, noise: the sentence says which
    *"AFMNUVE",  # functions, before their parentheses; the article
    *"ihktu",  # indices, a step, a share, a sum
    "Σ_(j<i)",
    *"abcemoprsvBISgπΦΣ",  # named where they stand
    "g_Q",
    "g_K",
    "s_l",
    "x_0",
    "x_N",
    "F_i",
    "F_j",
}
"""Variables that the sentence itself explains, constants, and letters of formulas that a row has as
a whole."""
LETTER = re.compile(
    r"(?<![\w'’])([A-Za-z\u0370-\u03ff](?:_(?:\([^()]+\)|[A-Za-z0-9]+))?)[²³⁴′]*(?![\w'’])"
)
CODE = re.compile(r"%\{[^}]*\}|\{[^}]*\}|<[^>]*>|\$\w+|\^(?:\([^()]+\)|\S+)|\bn_[a-z]{3,}|\($")
"""What is no text: places of values, tags, names of fields; and exponents, which open nothing."""


def texts() -> Iterator[str]:
    """What the page says of its numbers: labels, symbols, formulas, claims, captions, axis titles,
    evidence."""
    for spec in SPECS.values():
        yield from (spec.about.label, spec.description)
        yield from (option.formula for option in spec.about.options.values())
    for row in (*FIGURES.values(), *BY_CHOICE.values()):
        yield from (row.title, row.caption, row.together)
    for statistic in (*VOCABULARY.values(), *TRAINING.values()):
        yield from (statistic.symbol, statistic.definition)
    yield from (part for plot in CURVES for part in (plot.title, plot.caption))
    yield from (row.title for row in MAPS.values())
    yield from (row.words for row in WHYS.values())
    yield from (why(name, predict(preset(design))).words for name in LAWS for design in PRESETS)
    yield from (part for row in PRESETS.values() for part in (row.words, row.differs))
    for path in PACKAGE.glob("diagnosis/*.py"):
        yield from sentences(path)


def sentences(path: Path) -> Iterator[str]:
    """String literals that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def unexplained(text: str) -> set[str]:
    """Symbols in a text that open nothing and are no plain variables."""
    rest = SYMBOL.sub(lambda found: " " if found[1] else found[0], CODE.sub(" ", text))
    return {found[1] for found in LETTER.finditer(rest)} - PLAIN


def test_every_symbol_of_the_page_has_a_row() -> None:
    found = {symbol: text for text in texts() for symbol in unexplained(text)}
    assert not found, found


def test_a_symbol_without_a_row_is_found() -> None:
    assert unexplained("grows with ζ and κ_l, not with q, α² or W_Q") == {"ζ", "κ_l"}


def test_every_statistic_and_every_control_with_a_symbol_has_a_row() -> None:
    symbols = {name: spec.about.symbol for name, spec in SPECS.items()}
    symbols |= {f"statistic.{row.name}": row.symbol for row in VOCABULARY.values()}
    for name, symbol in symbols.items():
        assert (
            not symbol
            or term_of(name.split(".")[1], symbol) >= 0
            or any(found[1] for found in SYMBOL.finditer(symbol))
        ), f"{name}: {symbol}"


def test_letters_of_words_are_no_symbols() -> None:
    for text in (
        "A row's T5, PaLM q_proj",
        "isn't Q2 quick",
        "the layer's, 2N, n_layers, d(x)",
        "2^N and 2^(−q)",
    ):
        assert not any(found[1] for found in SYMBOL.finditer(text)), text
    named = [
        TERMS[MARKS[found[1]]].name
        for found in SYMBOL.finditer("q·k, q, N(x), H / ln n, H_res")
        if found[1]
    ]
    assert named == [
        "Attention logit",
        "Second moment",
        "Norm",
        "Attention entropy",
        "Mixing of streams",
    ]


def test_rows_name_lessons_and_fields_that_there_are() -> None:
    fields = {name.split(".")[1] for name in SPECS} | set(VOCABULARY)
    for row in TERMS:
        assert row.lesson in {"", *LESSONS}, row.name
        assert set(row.fields) <= fields, row.name
        assert row.words.endswith((".", ".)")), row.name
    assert set(marks().values()) | {TERMS.index(row) for row in TERMS if row.fields} == set(
        range(len(TERMS))
    )


# --- why, papers ----------------------------------------------------------------------------------


def test_every_figure_of_the_page_says_why_and_where_to_go_on() -> None:
    for row in (*FIGURES.values(), *BY_CHOICE.values(), row_of("weight_variance")):
        assert row.why(predict(Config())).words.endswith("."), row.name
        assert row.why().source, row.name
    assert all(one.lesson in {"", *LESSONS} for one in WHYS.values())
    assert set(ALIASES) <= set(MAPS)
    assert set(ALIASES.values()) <= set(WHYS)


def test_papers_are_numbers_at_arxiv_and_each_is_named_somewhere() -> None:
    options = (option for spec in SPECS.values() for option in spec.about.options.values())
    named = [
        *(one.source for one in options),
        *(one.source for one in (*PRESETS.values(), *TERMS, *WHYS.values())),
    ]
    numbers = {
        name: paper.fields["eprint"] for name, paper in PAPERS.items() if "eprint" in paper.fields
    }
    for paper, number in numbers.items():
        assert re.fullmatch(r"\d{4}\.\d{4,5}", number), paper
        if "arXiv" not in paper and paper != "Kingma & Ba 2015":  # recipes name those
            assert any(f"{paper}, arXiv {number}" in cited(source) for source in named), (
                f"{paper} is named nowhere"
            )


def test_of_two_papers_of_one_name_the_row_says_which() -> None:
    assert cited("He et al. 2015") == "He et al. 2015, arXiv 1512.03385"
    assert cited("He et al. 2015, eq. 10") == "He et al. 2015, eq. 10, arXiv 1502.01852"
    assert cited("Magneto: Wang et al. 2022, section 3; DeepNet: Wang et al. 2022") == (
        "Magneto: Wang et al. 2022, arXiv 2210.06423, section 3; DeepNet: Wang et al. 2022, arXiv 2203.00555"
    )
    assert cited("nobody 1999") == "nobody 1999"


class Links(HTMLParser):
    """The tags of a piece of HTML, and the text between them."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


ADDRESS = re.compile(r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|kexue\.fm/archives/\d+)")


def test_sources_of_the_lessons_are_links() -> None:
    for lesson in ROWS:
        found = Links(linked(lesson.essay))
        assert len(found.tags) == lesson.essay.count("arXiv") + lesson.essay.count("kexue"), (
            lesson.essay
        )
        for tag, attributes in found.tags:
            assert tag == "a"
            assert ADDRESS.fullmatch(attributes["href"] or "")
            assert (attributes["rel"], attributes["target"]) == ("noopener noreferrer", "_blank")
    assert Links(linked("Xiong et al. 2020, arXiv 2002.04745")).text == "Xiong et al. 2020"
    assert set(HOSTS) == {"arXiv", "kexue"}


@pytest.mark.parametrize(
    "hostile",
    [
        '<img src=x onerror="alert(1)"> q',
        "q</button><script>α</script>",
        '" onclick="H',
        "<b>, arXiv 2002.04745",
    ],
)
def test_no_text_becomes_markup(hostile: str) -> None:
    found = Links(linked(hostile))
    assert {tag for tag, _ in found.tags} <= {"a"}
    assert all(not name.startswith("on") for _, attributes in found.tags for name in attributes)


# --- usual values ---------------------------------------------------------------------------------

EVERY = {name: spec for name, spec in SPECS.items() if name.split(".")[0] in ("Config", "Recipe")}
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.mark.parametrize("name", EVERY)
def test_every_field_of_a_design_and_a_recipe_says_its_usual_values(name: str) -> None:
    spec = EVERY[name]
    values, _, who = spec.about.usual.partition(": ")
    if spec.kind == "text":
        assert not values, "a text of a person's own has no usual value"
        return
    assert who, "names nobody who uses them"
    if spec.kind == "choice":
        assert set(values.split(", ")) <= set(spec.choices)
    elif spec.kind == "switch":
        assert values in ("on", "off")
    else:
        numbers = [float(one) for one in NUMBER.findall(values)]
        assert numbers == sorted(numbers) != []
        assert np.all([spec.low <= number <= spec.high for number in numbers])


def test_what_is_counted_has_a_unit() -> None:
    counted = {name: spec.about.unit for name, spec in EVERY.items() if spec.kind == "integer"}
    assert [name for name, unit in counted.items() if not unit] == ["Config.seed"]
