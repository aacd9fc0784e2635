"""Sphinx: the site of lessons and guides, built of the files of the repository as they stand (`make
docs`)."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.search import SearchLanguage

from explorer import plotlyjs

project = "Transformer Signal Explorer"
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "notebooks/lessons/*.ipynb",
    "CHANGELOG.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "benchmarks", "explorer", "tests"]  # not searched at all
extensions = [
    "myst_nb",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make lessons` has stored what comes out, and the tests compare it

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = project
html_show_sphinx = False
html_extra_path = ["root"]  # the site's own address leads to its first page
html_static_path, html_css_files = ["static"], ["site.css"]
html_sidebars = {
    "**": [
        f"{name}.html"
        for name in (
            "sidebar/brand",
            "sidebar/search",
            "language",
            "sidebar/scroll-start",
            "sidebar/navigation",
            "sidebar/scroll-end",
        )
    ]
}
templates_path = ["templates"]

language = "en"
locale_dirs = ["docs/locale"]
gettext_compact = False
gettext_location = False


def mark_code(*arguments: Any) -> None:
    """Marks the examples of a docstring, which are indented after a blank line, as Sphinx wants
    them marked, where they are not."""
    lines: list[str] = arguments[-1]

    def indent(line: str) -> int:
        return len(line) - len(line.lstrip())

    for number in range(len(lines) - 2, 0, -1):
        if (
            not lines[number]
            and lines[number - 1]
            and not lines[number - 1].endswith("::")
            and indent(lines[number + 1]) > indent(lines[number - 1])
        ):
            lines[number:number] = ["", " " * indent(lines[number - 1]) + "::"]


WHILE = {"en": " (while explorer serve runs)", "zh_CN": "（explorer serve 运行时）"}


def lead(app: Sphinx, doctree: nodes.document) -> None:
    """Has links of a lesson to notebooks that are no pages of the site lead to what is: server,
    other language."""
    for link in list(doctree.findall(pending_xref)):
        target, name = link["reftarget"], link["reftarget"].rpartition("/")[2]
        if target == "notebooks/explorer":
            address = f"http://localhost:8866/?{link['reftargetid']}"
            link.parent.insert(link.parent.index(link) + 1, nodes.Text(WHILE[app.config.language]))
        elif target.startswith("notebooks/lessons/zh/"):
            other = "../../zh/" if app.config.language == "en" else "../../../"
            address = f"{other}notebooks/lessons/{name}.html"
        else:
            continue
        link.replace_self(nodes.reference("", "", *link.children, refuri=address))


LESSONS = Path(__file__).parent.parent / "notebooks" / "lessons"


def read_translation(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the Chinese lesson in place of the English one: its code and outputs are Chinese, too.

    Its links are those of a lesson one folder deeper."""
    if app.config.language == "en" or Path(page).parent != Path("notebooks/lessons"):
        return
    text = (LESSONS / "zh" / f"{Path(page).name}.ipynb").read_text(encoding="utf-8")
    text = re.sub(r"\]\(\.\./(\d\d_)", r"](zh/\1", text)
    source[0] = text.replace("](../../", "](../")


GRIDS = Path(__file__).with_name("live")
"""Of each lesson, its live figures at some settings: see benchmarks/grids.py."""
NOTE = re.compile(r"<p><em>[^<]*</em></p>(?=</div>$)")
"""Last line of a still: that the live page comes when its cell is run."""


PICTURE = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)">')


def inline(picture: re.Match[str]) -> str:
    """A picture as SVG of the page itself, whose style gives it the colors of light or dark."""
    drawing = base64.b64decode(picture[2]).decode()
    width, height = re.findall(r'(?:width|height)="(\d+)"', drawing)[:2]
    marks = f'class="still" role="img" aria-label="{picture[1]}" viewBox="0 0 {width} {height}"'
    return drawing.replace("<svg", f"<svg {marks}", 1)


def change_stills(_: Sphinx, doctree: nodes.document) -> None:
    """Puts pictures into the page itself, and removes the notes of stills, which move on the
    site."""
    for output in list(doctree.findall(nodes.raw)):
        text = PICTURE.sub(inline, NOTE.sub("", output.astext()))
        if text != output.astext():
            output.replace_self(nodes.raw("", text, format="html"))


def write_scripts(app: Sphinx) -> None:
    """Writes plotly.js and the figures of each lesson as scripts, which a page in a folder may
    load."""
    if app.builder.format != "html":
        return
    folder = Path(app.outdir, "_static")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plotly.js").write_bytes(gzip.decompress(plotlyjs.part()))
    for grid in GRIDS.glob("*.json"):
        figures = grid.read_text(encoding="utf-8")
        script = f"const FIGURES = {figures};"
        if app.config.language != "en":
            words = (GRIDS / "zh" / grid.name).read_text(encoding="utf-8")
            script += f"window.WORDS = {words};"
        (folder / f"{grid.stem}.js").write_text(script, encoding="utf-8")


def add_scripts(app: Sphinx, page: str, *_: Any) -> None:
    """Adds the scripts of live figures to a lesson's page."""
    lesson = page.rpartition("/")[2]
    if (GRIDS / f"{lesson}.json").exists():
        for script in ("plotly.js", f"{lesson}.js", "live.js"):
            app.add_js_file(script, loading_method="defer")


class Chinese(SearchLanguage):
    """Chinese search by pairs of characters: index and query are split alike, without a dictionary.

    Sphinx's own needs jieba to index any Chinese term, and its script fails on the page in Sphinx
    9.0 and 9.1 (sphinx-doc/sphinx#14229)."""

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = r"""
function splitQuery(query) {
  const parts = query.match(/[\u4e00-\u9fff]+|(?:(?![\u4e00-\u9fff])[\p{L}\p{N}_])+/gu) ?? [];
  return parts.flatMap((part) => (
    part.match(/^[\u4e00-\u9fff]{2,}$/) ? Array.from(part).slice(1).map((sign, place) => part[place] + sign) : [part]));
}
"""

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's name
        """Words of letters and digits, and every two characters that follow each other."""
        pairs = [
            run[place : place + 2]
            for run in re.findall(r"[\u4e00-\u9fff]+", input)
            for place in range(max(1, len(run) - 1))
        ]
        return [*re.findall(r"[^\W\u4e00-\u9fff]+", input), *pairs]

    def stem(self, word: str) -> str:
        """A word in lower case."""
        return word.lower()


def setup(app: Sphinx) -> None:
    """Has docstrings marked before their sections are read, links changed before they are looked
    up, Chinese found, and live figures moved by scripts."""
    app.add_search_language(Chinese)
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.connect("source-read", read_translation)
    app.connect("doctree-read", lead)
    app.connect("doctree-read", change_stills)
    app.connect("builder-inited", write_scripts)
    app.connect("html-page-context", add_scripts)
