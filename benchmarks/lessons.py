"""Lessons: executes their notebooks, stores text and stills as a reader without a kernel sees them, and translates.

    python -m benchmarks.lessons [01_drawing_weights …]    # all of them where none is named
    python -m benchmarks.lessons --translate               # catalogues and translated notebooks alone

`make test` compares every stored number with what comes out; a live figure is stored as its still, without the widget.
A catalogue in `docs/locale` has each paragraph of a lesson and its translation. The translated notebooks are written
from them: their text is another, their code and outputs are the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from nbclient import NotebookClient
from sphinx_intl.basic import update

from explorer.serve import notebooks

ROOT = Path(__file__).parents[1]
LOCALE, LANGUAGE, FOLDER = ROOT / "docs" / "locale", "zh_CN", "zh"
CATALOGUES = LOCALE / LANGUAGE / "LC_MESSAGES"
LESSONS = sorted((notebooks() / "lessons").glob("*.ipynb"))
BEFORE, AFTER = r"((?:^|\||\$\$)[ \t>#*-]*(?:\d+\.[ \t]+)?)", r"(?=[ \t]*(?:\||\$\$|$))"
"""What stands around a paragraph in Markdown: a line's ends, a table's bars, marks of a heading, list or formula."""
WIDGET = "application/vnd.jupyter.widget-view+json"


def store(path: Path) -> None:
    """Executes a notebook from top to bottom and writes it back, without timestamps and widgets."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, record_timing=False, store_widget_state=False, coalesce_streams=True)
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.lang = "en"  # the page that the server makes of it leads to the other language
    nbformat.write(notebook, path)


def extract(folder: Path) -> None:
    """Writes the messages of each lesson, and of the site's first page, into a folder.

    Raises:
        CalledProcessError: Sphinx failed, or warned of something.
    """
    options = ["-q", "-W", "-b", "gettext", "-D", "include_patterns=docs/index.md,notebooks/lessons/*.ipynb",
               "-D", "suppress_warnings=toc.not_readable"]
    subprocess.run([sys.executable, "-m", "sphinx", *options, "-c", ROOT / "docs", ROOT, folder], check=True)


def catalogue(path: Path) -> Catalog:
    """The messages of a file and their translations."""
    with path.open("rb") as file:
        return read_po(file)


def translated(lesson: Path) -> nbformat.NotebookNode:
    """A lesson in the other language: each paragraph is replaced by its translation, where there is one.

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
            cell.source, count = paragraph.subn(lambda found, text=message.string: found[1] + text, cell.source)
            changes += count
        if not changes:
            raise ValueError(f"{lesson.name} has no paragraph {message.id!r}")
    for cell in cells:
        cell.source = cell.source.replace("](../", "](../../")
    notebook.metadata.lang = FOLDER
    return notebook


def translate() -> None:
    """Brings the catalogues up to date and writes the translated notebooks."""
    with tempfile.TemporaryDirectory() as folder:
        extract(Path(folder))
        update(str(LOCALE), folder, [LANGUAGE], line_width=120)
    for lesson in LESSONS:
        (lesson.parent / FOLDER).mkdir(exist_ok=True)
        nbformat.write(translated(lesson), lesson.parent / FOLDER / lesson.name)


if __name__ == "__main__":
    for lesson in LESSONS:
        if lesson.stem in sys.argv[1:] or len(sys.argv) == 1:
            store(lesson)
            sys.stdout.write(f"{lesson.name}: {lesson.stat().st_size / 1000:.0f} kB\n")
    translate()
