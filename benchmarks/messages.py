"""Messages of the package: collects them from its code, its tables and its rows.

    python -m benchmarks.messages  # brings the catalogues in explorer/locale up to date

A message is the first argument of a function in `TRANSLATING`, or a literal that is given the name
`message`; a text in one of `TABLES`; or a field of a row that is read in the language that is
spoken, see `explorer.translation.with_messages`. What is no sentence, such as a formula, has no
translation."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import nbformat
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from sphinx_intl.catalog import dump_po

from explorer.app.widgets.verdict import WITHHELD
from explorer.app.widgets.wording import in_words
from explorer.config import Config
from explorer.diagnosis.finding import ORDER
from explorer.ends import ENDS
from explorer.fields import GROUPS
from explorer.figures import FIGURES
from explorer.glossary import TERMS
from explorer.lessons.exercises import EXERCISES, TEXTS
from explorer.lessons.ledger import rows as ledger_rows
from explorer.lessons.settings import PROGRESS
from explorer.schemes.preset import GROUPS as DESIGNS
from explorer.schemes.preset import PRESETS
from explorer.sites import SITE_WORDS
from explorer.tasks.cluster import OUT_OF_REACH
from explorer.tasks.pool import KILLED, SILENT
from explorer.theory.rough import FEATURES
from explorer.theory.rough import GROUPS as MATRICES
from explorer.translation import LOCALE, Message
from explorer.vocabulary import VOCABULARY
from explorer_serve.start import notebooks

ROOT = Path(__file__).parents[1]
PACKAGE, PLUGINS = ROOT / "explorer", ROOT / "plugins"
LANGUAGE = "zh_CN"
PACKAGE_MESSAGES = LOCALE / LANGUAGE / "LC_MESSAGES" / "explorer.po"
LESSONS = sorted((notebooks() / "lessons").glob("*.ipynb"))
TRANSLATING = {
    "translated",
    "Note",
    "refusal",
    "phrases",
    "TranslatedError",
    "AnswerError",
    "ExpressionError",
}
"""Functions and errors of the package whose first argument is a message."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "diagnosis/verdicts.toml": ("field", "value"),
    "figures/why.toml": ("lesson", "source"),
}
"""Tables of texts, and keys of what is no text in them."""
SYMBOLS = re.compile(
    r"\{[^}]*\}|[\w^.]*[_(^.·=][\w^.]*|\b(?:ln|tanh|erf|elu|mean|std|max|Var|float\d+)\b|[A-Z][A-Z_]*\b"
)
"""Fields, and what reads the same in every language: formulas and names."""
WORD = re.compile(r"[A-Za-z]{2,}")


def is_prose(text: str) -> bool:
    """Whether a text has a word that is no part of a formula."""
    return bool(WORD.search(SYMBOLS.sub("", text)))


def literals(node: ast.expr) -> Iterator[str]:
    """The literal that an expression is, or each that it may be: "a" if x else "b"."""
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.IfExp(body=first, orelse=second):
            yield from literals(first)
            yield from literals(second)


def called_messages(code: str) -> Iterator[str]:
    """The messages of a module's calls of `TRANSLATING`, and those that are named `message`."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if (
                name in TRANSLATING
            ):
                yield from literals(first)
            case ast.Call(func=ast.Name(id="opening"), args=[_, rule]):
                yield from literals(rule)
            case ast.Call(args=[ast.Name(id="translated"), ast.Tuple(elts=several)]):
                for text in several:  # map(translated, ("a", "b"))
                    yield from literals(text)
            case ast.Assign(targets=[ast.Name(id="message")], value=value):
                yield from literals(value)


def table_messages(table: Mapping[str, object], left_out: Iterable[str]) -> Iterator[str]:
    """The texts of a table, and of those in it; a line of code only where it has a comment."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from table_messages(value, left_out)
        elif isinstance(value, str) and key not in left_out and (key != "code" or "#" in value):
            yield value


def row_messages(row: object) -> Iterator[str]:
    """The fields of a row that are read in the language that is spoken."""
    for kind in type(row).__mro__:
        for name, field in vars(kind).items():
            if isinstance(field, Message):
                yield getattr(row, name)


def choice_messages() -> Iterator[str]:
    """The words of the choices of an experiment."""
    yield from GROUPS
    for spec in Config.specs().values():
        yield from row_messages(spec)
        yield from row_messages(spec.about)
        for value, option in spec.about.options.items():
            yield from (in_words(value), *row_messages(option))


def lesson_messages() -> Iterator[str]:
    """The words of exercises, of the ledger, and of live figures' controls."""
    for number, exercise in EXERCISES.items():
        yield from (exercise.asks, *exercise.parts, exercise.box)
        yield from (TEXTS[number].hint, TEXTS[number].solution)
        for mistake in TEXTS[number].mistakes:
            yield from (mistake.words, mistake.question)
    for row in ledger_rows():
        yield row.repair
    for lesson in LESSONS:
        for cell in code_cells(nbformat.read(lesson, as_version=4)):
            yield from control_labels(cell.source)


def control_labels(code: str) -> Iterator[str]:
    """Labels of the controls that a function of a notebook gets from the names of its
    parameters."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            for argument in node.args.args:
                if argument.annotation and len(argument.arg) > 2 and argument.arg != PROGRESS:
                    yield argument.arg.replace("_", " ").capitalize()


def package_messages() -> Catalog:
    """Every message of the package, without a translation."""
    sentences: list[str] = []
    for path in (*sorted(PACKAGE.rglob("*.py")), *sorted(PLUGINS.rglob("*.py"))):
        sentences += called_messages(path.read_text(encoding="utf-8"))
    sentences += lesson_messages()
    rows = [
        *ORDER,
        *SITE_WORDS.values(),
        *DESIGNS.values(),
        *choice_messages(),
        "measured",
        "predicted",
        WITHHELD["meaning"],
        KILLED,
        SILENT,
        OUT_OF_REACH,
    ]
    for row in VOCABULARY.values():
        _, healthy = row.healthy or (0.0, "")
        rows += [*row_messages(row), row.unpredicted, healthy, *row.marks.values()]
    for row in (*ENDS.values(), *TERMS, *FIGURES.values(), *PRESETS.values()):
        rows += row_messages(row)
    rows += [*MATRICES.values(), *(feature.words or feature.name for feature in FEATURES.values())]
    sentences += filter(is_prose, rows)
    for file, left_out in TABLES.items():
        table = tomllib.loads((PACKAGE / file).read_text(encoding="utf-8"))
        sentences += filter(is_text, table_messages(table, left_out))
    messages = Catalog()
    for text in filter(None, sentences):
        messages.add(text)
    return messages


def is_text(text: str) -> bool:
    """Whether a text of a table has words, or the stops of a sentence or a list."""
    return is_prose(text) or bool(re.search(r"[.,;]( |$)", text))


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells of code of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def catalogue(path: Path) -> Catalog:
    """The messages of a file and their translations."""
    with path.open("rb") as file:
        return read_po(file)


def write_catalogue(path: Path, messages: Catalog) -> None:
    """Writes messages and their translations into a file."""
    dump_po(str(path), messages, line_width=120)


def bring_up_to_date(path: Path, template: Catalog) -> None:
    """Gives a catalogue the messages of a template; new ones have no translation yet."""
    messages = catalogue(path) if path.exists() else Catalog(LANGUAGE, fuzzy=False)
    written = messages.creation_date  # it would change at each run
    messages.update(template, no_fuzzy_matching=True)
    messages.obsolete.clear()
    messages.creation_date = written
    write_catalogue(path, messages)


if __name__ == "__main__":
    bring_up_to_date(PACKAGE_MESSAGES, package_messages())
