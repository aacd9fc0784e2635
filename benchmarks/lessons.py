"""Lessons: executes their notebooks, stores text and stills as a reader without a kernel sees them,
and translates.

    python -m benchmarks.lessons [01_drawing_weights …]  # all of them where none is named
    python -m benchmarks.lessons --translate
        # heads and feet, catalogues and translated notebooks alone
    python -m benchmarks.lessons --ledger  # losses of the course's model after each repair

`make test` compares every stored number with what comes out; a live figure is stored as its still,
without the widget. A catalogue in `docs/locale` has each paragraph of a lesson and its translation.
The translated notebooks are written from them, and executed where their code or the numbers of the
lesson have changed.

There are two more kinds of catalogues. `docs/locale/zh_CN/LC_MESSAGES/notebooks/code` has the
strings and comments of each lesson's code, see `code_texts`. `explorer/locale` has the messages of
the package, see `messages`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path

import nbformat
import torch
from babel.messages.catalog import Catalog
from nbclient import NotebookClient
from sphinx_intl.basic import update

from benchmarks.code_texts import NUMBER, replaced, texts
from benchmarks.messages import (
    LANGUAGE,
    LESSONS,
    PACKAGE_MESSAGES,
    ROOT,
    bring_up_to_date,
    catalogue,
    code_cells,
    package_messages,
    write_catalogue,
)
from explorer.glossary import ROWS, Lesson
from explorer.lessons.ledger import FILE, LAST, STEPS
from explorer.lessons.running import MODELS, train
from explorer.numbers import listed
from explorer_serve.server import TRAIN

LOCALE, FOLDER = ROOT / "docs" / "locale", "zh"
CATALOGUES = LOCALE / LANGUAGE / "LC_MESSAGES"
IMPORT = "import explorer as ex"
BEFORE, AFTER = r"((?:^|\||\$\$)[ \t>#*-]*(?:\d+\.[ \t]+)?)", r"(?=[ \t]*(?:\||\$\$|$))"
"""What stands around a paragraph in Markdown: a line's ends, a table's bars, marks of a heading,
list or formula."""
WIDGET = "application/vnd.jupyter.widget-view+json"
COURSE = [row for row in ROWS if row.minutes]
"""The lessons in their order."""
NAMED = {row.name: row for row in COURSE}
HOW = {
    "en": (
        "Every number here is computed by the lines that you see. On a page of `explorer serve` they run by "
        "themselves, those that train when you press their button, and each exercise has a box for your answer. To "
        "run and change the lines yourself, open this notebook with `explorer lab`, or on "
        "[Binder](https://mybinder.org) with the address of this repository."
    ),
    "zh": (
        "这里的每个数，都由你看得见的代码算出。在 `explorer serve` 的页面上，代码自动运行，"
        "训练的部分等你按下按钮，每道练习都有一个写答案的框。"
        "想自己运行并改动代码，就用 `explorer lab` 打开这个 notebook，"
        "或在 [Binder](https://mybinder.org) 上用本仓库的地址打开。"
    ),
}
"""How a lesson is read, wherever it is."""
EXERCISES = {
    "en": (
        "On a served page, write the answer into the box. In Jupyter, change it in the cell, and run the cell; "
        '`ex.hint("{number}")` helps on, and `ex.solution("{number}")` has the solution.'
    ),
    "zh": (
        "在服务器提供的页面上，把答案写进框里。在 Jupyter 中，修改单元格里的答案并运行；"
        '`ex.hint("{number}")` 给出提示，`ex.solution("{number}")` 给出解答。'
    ),
}
"""How exercises are answered."""


def titled(row: Lesson, language: str) -> str:
    """A lesson's number and title, which link to it."""
    title = row.title if language == "en" else row.chinese
    return f"[{row.number} · {title}]({row.name}.ipynb)"


def way(row: Lesson, language: str) -> str:
    """The line that leads to the lessons before and after, and to the other language."""
    here = COURSE.index(row)
    before = [f"← {titled(COURSE[here - 1], language)}"] if here else []
    after = [f"{titled(COURSE[here + 1], language)} →"] if here + 1 < len(COURSE) else []
    place = (
        f"Lesson {row.number} of {len(COURSE)}"
        if language == "en"
        else f"第 {row.number} 课，共 {len(COURSE)} 课"
    )
    other = "中文" if language == "en" else "English"
    return " · ".join([place, *before, *after, f"[{other}](zh/{row.name}.ipynb)"])


def needed(row: Lesson, language: str) -> str:
    """The lessons that one needs, which link to them."""
    if not row.needs:
        return "needs no other lesson" if language == "en" else "无需先学其他课"
    links = [f"[{number}]({COURSE[number - 1].name}.ipynb)" for number in row.needs]
    if language == "en":
        return f"needs lesson{'s' if len(links) > 1 else ''} {listed(links)}"
    return f"先学第 {'、'.join(links)} 课"


def generated(row: Lesson, language: str) -> list[str]:
    """The paragraphs of a lesson that follow from its row, but for the first, which has the source
    at its end."""
    return [
        way(row, language),
        HOW[language],
        EXERCISES[language].format(number=f"{row.number:02}.1"),
    ]


def first(row: Lesson, language: str, source: str) -> str:
    """The line below the title: minutes, lessons needed, source."""
    if language == "en":
        return f"*{row.minutes} minutes · {needed(row, language)} · {source}"
    return f"*{row.minutes} 分钟 · {needed(row, language)} · {source}"


def furnish(notebook: nbformat.NotebookNode, row: Lesson) -> None:
    """Writes what follows from a lesson's row into its notebook: head, foot, and how exercises are
    answered."""
    line, how, exercises = generated(row, "en")
    texts = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    title, under, *rest = texts[0].source.split("\n\n")
    source = under.partition(" · ")[2].partition(" · ")[2]
    rest = [part for part in rest if not part.startswith(("Lesson ", how.partition(".")[0]))]
    heading = f"# Lesson {row.number} · {title.partition(' · ')[2]}"
    texts[0].source = "\n\n".join([heading, first(row, "en", source), line, *rest, how])
    parts = [
        part
        for part in texts[-1].source.split("\n\n")
        if not part.startswith(("Lesson ", "Back: ", "Next: "))
    ]
    texts[-1].source = "\n\n".join([*parts, line])
    for cell in texts:
        if cell.source.startswith("## 6 · Exercises"):
            begin, _, *rest = cell.source.split("\n\n")
            cell.source = "\n\n".join([begin, exercises, *rest])


def store(path: Path) -> None:
    """Executes a notebook from top to bottom and writes it back, without timestamps and widgets.

    Of a cell that trains the seconds that it took stay, for the button for which it waits on a
    served page."""
    notebook = nbformat.read(path, as_version=4)
    furnish(notebook, NAMED[path.stem])
    for cell, times in execute(notebook):
        if TRAIN in cell.metadata.get("tags", []):
            names = ("iopub.execute_input", "shell.execute_reply")
            begun, ended = (datetime.fromisoformat(times[name]) for name in names)
            cell.metadata.seconds = max(1, round((ended - begun).total_seconds()))
    notebook.metadata.lang = (
        "en"  # the page that the server makes of it leads to the other language
    )
    nbformat.write(notebook, path)


def execute(notebook: nbformat.NotebookNode) -> list[tuple[nbformat.NotebookNode, dict[str, str]]]:
    """Executes a notebook, whose outputs then have no widgets; gives the times of each cell of
    code."""
    client = NotebookClient(
        notebook, timeout=600, record_timing=True, store_widget_state=False, coalesce_streams=True
    )
    client.execute()
    cells = code_cells(notebook)
    for cell in cells:
        cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    return [(cell, cell.metadata.pop("execution")) for cell in cells]


def extract(folder: Path) -> None:
    """Writes the messages of each lesson, and of the site's first page, into a folder.

    Raises:
        CalledProcessError: Sphinx failed, or warned of something.
    """
    options = [
        "-q",
        "-W",
        "-b",
        "gettext",
        "-D",
        "include_patterns=docs/index.md,notebooks/lessons/*.ipynb",
        "-D",
        "suppress_warnings=toc.not_readable",
    ]
    subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-c", ROOT / "docs", ROOT, folder], check=True
    )


def code_messages(lesson: Path) -> Catalog:
    """The texts of a lesson's code, without a translation."""
    messages = Catalog()
    for cell in code_cells(nbformat.read(lesson, as_version=4)):
        for text in texts(cell.source):
            messages.add(text.source)
    return messages


def code_catalogue(lesson: Path) -> Path:
    """The file of a lesson's texts in code."""
    return CATALOGUES / "notebooks" / "code" / f"{lesson.stem}.po"


def translated(lesson: Path) -> nbformat.NotebookNode:
    """A lesson in the other language: each paragraph, and each text in code, is replaced by its
    translation, where there is one. Its outputs are still those of the English code.

    Raises:
        ValueError: a paragraph of the catalogue is not in the lesson; names both.
    """
    notebook = nbformat.read(lesson, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    for message in catalogue(CATALOGUES / "notebooks" / "lessons" / f"{lesson.stem}.po"):
        if not message.id or not message.string:
            continue
        words = r"\s+".join(map(re.escape, message.id.split()))
        paragraph, changes = re.compile(f"{BEFORE}{words}{AFTER}", re.MULTILINE), 0
        for cell in cells:
            cell.source, count = paragraph.subn(
                lambda found, text=message.string: found[1] + text, cell.source
            )
            changes += count
        if not changes:
            raise ValueError(f"{lesson.name} has no paragraph {message.id!r}")
    for cell in cells:
        cell.source = cell.source.replace("](../", "](../../").replace("](zh/", "](../")
    translations = {
        message.id: message.string
        for message in catalogue(code_catalogue(lesson))
        if message.id and message.string
    }
    for cell in code_cells(notebook):
        cell.source = replaced(cell.source, translations)
        # everything that the lesson then says is Chinese
        cell.source = cell.source.replace(IMPORT, f'{IMPORT}\n\nex.language("{FOLDER}")')
    notebook.metadata.lang = FOLDER
    notebook.metadata.title = NAMED[lesson.stem].chinese
    return notebook


def output_numbers(cell: nbformat.NotebookNode) -> Counter[str]:
    """The numbers that a cell has printed or shown as text."""
    shown = [output.get("text") or output["data"].get("text/plain", "") for output in cell.outputs]
    return Counter(NUMBER.findall("\n".join(shown)))


def with_outputs(notebook: nbformat.NotebookNode, path: Path) -> nbformat.NotebookNode:
    """A translated lesson with its own outputs: stored ones, where its code and all numbers are as
    they were, else it is executed."""
    cells = code_cells(notebook)
    stored = code_cells(nbformat.read(path, as_version=4)) if path.exists() else []
    codes = [cell.source for cell in cells]
    numbers = [output_numbers(cell) for cell in cells]
    if codes != [cell.source for cell in stored] or numbers != [*map(output_numbers, stored)]:
        execute(notebook)
        if numbers != [*map(output_numbers, cells)]:
            raise ValueError(f"{path} has other numbers than the English lesson")
        return notebook
    for cell, older in zip(cells, stored, strict=True):
        cell.outputs = older.outputs
    return notebook


def translate_generated(path: Path, row: Lesson) -> None:
    """Writes into a lesson's catalogue the translations of what follows from its row."""
    messages = catalogue(path)
    known = dict(zip(generated(row, "en"), generated(row, FOLDER), strict=True))
    for message in messages:
        text = str(message.id)
        if text.startswith(f"*{row.minutes} minutes · "):
            source = message.string.partition(" · ")[2].partition(" · ")[2]  # of the line as it was
            known[text] = first(row, FOLDER, source)
        if text in known:
            message.string = known[text]
            message.flags.discard("fuzzy")
    write_catalogue(path, messages)


def translate() -> None:
    """Brings heads, feet and catalogues up to date, and writes the translated notebooks."""
    for lesson in LESSONS:
        notebook = nbformat.read(lesson, as_version=4)
        furnish(notebook, NAMED[lesson.stem])
        nbformat.write(notebook, lesson)
    with tempfile.TemporaryDirectory() as folder:
        extract(Path(folder))
        update(str(LOCALE), folder, [LANGUAGE], line_width=120)
    bring_up_to_date(PACKAGE_MESSAGES, package_messages())
    for lesson in LESSONS:
        bring_up_to_date(code_catalogue(lesson), code_messages(lesson))
        translate_generated(
            CATALOGUES / "notebooks" / "lessons" / f"{lesson.stem}.po", NAMED[lesson.stem]
        )
        (lesson.parent / FOLDER).mkdir(exist_ok=True)
        path = lesson.parent / FOLDER / lesson.name
        nbformat.write(with_outputs(translated(lesson), path), path)


def train_ledger(seeds: int = 8) -> None:
    """Trains the course's model after each lesson's repair, and stores its losses."""
    torch.set_num_threads(1)
    lines = ["# Losses of the course's character model in nats a letter, a list over seeds 0, 1, …"]
    lines += ["# written by `python -m benchmarks.lessons --ledger`", ""]
    for lesson, model in MODELS.items():
        runs = [train(model(seed), STEPS) for seed in range(seeds)]
        repair = (inspect.getdoc(model) or "").rstrip(".")
        if lesson == 1:
            repair = "nothing yet: every choice is wrong on purpose"
        start = ", ".join(f"{run[0]:.4f}" for run in runs)
        losses = ", ".join(f"{sum(run[-LAST:]) / LAST:.4f}" for run in runs)
        lines += ["[[row]]", f"lesson = {lesson}", f'repair = "{repair}"']
        lines += [f"start = [{start}]", f"losses = [{losses}]", ""]
        sys.stdout.write(f"{lesson}: {losses}\n")
        sys.stdout.flush()
        FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if "--ledger" in sys.argv:
        train_ledger()
        sys.exit()
    for lesson in LESSONS:
        if lesson.stem in sys.argv[1:] or len(sys.argv) == 1:
            store(lesson)
            sys.stdout.write(f"{lesson.name}: {lesson.stat().st_size / 1000:.0f} kB\n")
    translate()
