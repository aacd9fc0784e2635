"""The tab of the lessons: a card for each, which opens it as a page of its own, beside this one."""

from __future__ import annotations

import html

from explorer.app.widgets.parts import Part, prose
from explorer.figures.words import linked
from explorer.glossary.lessons import LESSONS, Lesson

LEAD = ("A lesson takes a question from the first broken line of code to exercises that check "
        "themselves, and opens as a page of its own. As notebooks to be changed, lessons are in "
        "<code>notebooks/</code>, which <code>explorer lab</code> opens.")


def lessons() -> Part:
    """The panel."""
    head = prose(f"<h2>Lessons</h2><p>{LEAD}</p>", "ex-lead")
    cards = prose(f'<ol class="ex-lesson-cards">{"".join(map(_card, LESSONS.values()))}</ol>', "ex-lessons")
    return Part([head, cards]).add_class("ex-panel")


def _card(row: Lesson) -> str:
    """Title, question, minutes and essay; the title is the link."""
    about = " · ".join(filter(None, (f"{row.minutes} minutes" if row.minutes else "", linked(row.essay))))
    return (f'<li><a href="{html.escape(row.file)}" target="_blank"><b>{html.escape(row.title)}</b></a>'
            f"<p>{html.escape(row.question)}</p><small>{about}</small></li>")
