"""Stills: pictures in a saved notebook in place of the live page, for readers without a kernel.

A notebook keeps no more of a widget than its number. Reopened, JupyterLab has nothing of that
number and writes an error; GitHub and nbviewer show the widget's plain text. So the page is
displayed twice: live, and as a table below it. Where style survives, as in JupyterLab, it hides the
table under a live page, and the error above the table; where it does not, the live page is not
tried at all."""

from __future__ import annotations

import html

from explorer.app.sentences import model_words, name_of, residual_words
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.figures import FIGURES
from explorer.figures.pages import image
from explorer.theory import predict
from explorer.translation import translated

STYLE = """<style>
.jp-OutputArea:not(:has(> .jp-OutputArea-child > .jp-OutputArea-output > .ex-root))
  > .jp-OutputArea-child:has(+ .jp-OutputArea-child > .jp-OutputArea-output > .ex-still),
.jp-OutputArea:has(> .jp-OutputArea-child > .jp-OutputArea-output > .ex-root)
  > .jp-OutputArea-child:has(> .jp-OutputArea-output > .ex-still) { display: none; }
.ex-still { animation: ex-still 0s 1s backwards; }
@keyframes ex-still { from { visibility: hidden; } }
</style>"""
"""The delay is for a page that is about to come. Step by step down: `:has` of whatever lies within
would be looked at again with each text that plotly writes."""


def page(config: Config) -> str:
    """The page, from what the theory expects of its first design."""
    profile = predict(config)
    design = f"{name_of(config)}: {model_words(config)}, {residual_words(config)}"
    findings = [f"{finding.meaning} {finding.details}" for finding in diagnose(profile)]
    pictures = "".join(
        image(FIGURES[name].draw([profile]), FIGURES[name].title)
        for name in ("second_moment", "gradient_by_layer")
        if FIGURES[name].statistic in profile
    )
    return still(
        "Transformer Signal Explorer", [design, *findings], pictures + profile._repr_html_()
    )


def still(title: str, sentences: list[str], body: str) -> str:
    """The HTML of a still: a title, sentences, and what stands below them, which is HTML
    already."""
    words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    sentence = translated("A still. The live page comes when this cell is run.")
    note = f"<p><em>{sentence}</em></p>"
    return f'{STYLE}<div class="ex-still"><h3>{html.escape(title)}</h3>{words}{body}{note}</div>'
