"""Stills: what is kept of a live page in a notebook's file, for those who only read it."""

from __future__ import annotations

import base64
import html
import re
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

import explorer as ex
from explorer.app import still

SOURCES = (
    "import explorer as ex\nex.dashboard(ex.preset('deepnorm', n_layers=3))",
    "ex.predict(ex.Config())",
    "ex.Config()",
    "ex.PRESETS",
    "ex.dashboard('?design=rezero&n_layers=5')",
)


@pytest.fixture(scope="module")
def executed() -> list[list[nbformat.NotebookNode]]:
    """The outputs of each cell, as they are saved."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in SOURCES]
    )
    NotebookClient(notebook, timeout=120).execute()
    return [cell.outputs for cell in notebook.cells]


def test_every_record_is_saved_as_something_that_reads_without_a_kernel(executed) -> None:
    for outputs in executed:
        assert [output for output in outputs if "<table>" in output.data.get("text/html", "")]


def test_a_live_page_is_saved_with_the_words_of_its_design(executed) -> None:
    live, static = executed[0]
    assert "application/vnd.jupyter.widget-view+json" in live.data
    assert (
        live.data["text/plain"]
        == "Dashboard(Config(n_layers=3, norm_placement='post', residual='deepnorm'))"
    )
    assert "application/vnd.jupyter.widget-view+json" not in static.data
    told = static.data["text/html"]
    assert "DeepNorm: 3 layers of width 256" in told
    profile = ex.predict(ex.preset("deepnorm", n_layers=3))
    assert profile._repr_html_() in told
    assert ex.diagnose(profile)[0].meaning in html.unescape(told)


def test_a_page_that_a_link_opens_is_saved_with_the_design_of_the_link(executed) -> None:
    assert "ReZero: 5 layers of width 256" in executed[-1][1].data["text/html"]


GONE = ex.Config(norm_placement="none", init_variance=1000.0)
"""Its signal is not finite."""


@pytest.mark.parametrize("config", [*map(ex.preset, list(ex.PRESETS)[::9]), GONE], ids=repr)
def test_a_still_is_small_and_the_same_each_time(config: ex.Config) -> None:
    once = still.page(config)
    assert still.page(config) == once
    assert len(once) < 20_000


def test_a_still_has_pictures_that_need_neither_style_nor_script() -> None:
    image = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)">')
    found = image.findall(still.page(ex.preset("post_ln")))
    assert [words.partition(",")[0] for words, _ in found] == ["Second moment", "Gradient by layer"]
    for words, picture in found:
        root = ElementTree.fromstring(base64.b64decode(picture))  # noqa: S314 - our own
        texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "depth (layers)" in texts
        assert "lowest" in words
        lines = [node.get("d") or "" for node in root.iter("{http://www.w3.org/2000/svg}path")]
        assert 24 in [line.count("L") for line in lines], (
            "a line from the input through all 24 sublayers"
        )
