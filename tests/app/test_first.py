"""The first picture: the theory's lines and words of a design, without a script, and without
torch."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser

from explorer.app.explore.diagram import Diagram
from explorer.app.first import first_picture
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.figures import FIGURES
from explorer.theory import predict


class Read(HTMLParser):
    """The text of a page, its tags, and what is open in the end."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.words, self.tags, self.open = "", [], 0
        before, _, rest = markup.partition("<style>")
        self.feed(before + rest.partition("</style>")[2])

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.append(tag)
        self.open += tag not in ("input", "path")

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag != "path"

    def handle_data(self, data: str) -> None:
        self.words += data


def test_it_says_what_the_theory_says() -> None:
    config = Config(norm_placement="post", n_layers=48)
    page = Read(first_picture(config, ["Explore", "A < B"]))
    (finding, *_) = diagnose(predict(config))
    assert finding.meaning in page.words
    assert finding.evidence in page.words
    assert all(row.title in page.words for row in FIGURES.values())
    assert page.words.count("Why?") == len(FIGURES)
    assert "A < B" in page.words
    assert "theory's prediction" in page.words
    assert page.open == 0
    assert "script" not in page.tags


def test_its_stack_and_its_layer_are_those_that_the_live_page_draws() -> None:
    config, live = Config(norm_placement="post", n_layers=3), Diagram()
    live.show(config, [predict(config)], Config())
    page = first_picture(config, ["Explore"])
    assert f'<div class="ex-stack-picture">{live.stack.picture}</div>' in page
    assert f'{live.head}</p><div class="ex-blocks">{live.svg}</div>' in page
    assert live.head == "<span>Layer 3 of 3</span><span>predicted</span>"


def test_a_server_draws_it_without_torch() -> None:
    code = (
        "import sys; from explorer_serve.zygote import picture; "
        "sys.stdout.buffer.write(picture().encode()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=True
    )
    drawn = done.stdout.decode()
    assert 'id="ex-first"' in drawn
    assert drawn.count('<svg class="ex-block"') == 2
    assert drawn.count('<div class="ex-stack-view') == 1
