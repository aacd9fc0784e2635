"""The tab of the lessons."""

from __future__ import annotations

import html

from explorer.app.page import Tab
from explorer.app.widgets.parts import Part, prose
from explorer.figures.words import linked
from explorer.glossary import LESSONS, Lesson
from explorer.numbers import listed

LESSONS_LEAD = (
    "A lesson takes a question from the first broken line of code to exercises that check themselves, and "
    "opens as a page of its own. As notebooks to be changed, lessons are in <code>notebooks/</code>, which "
    "JupyterLab opens."
)


def lessons() -> Part:
    """The panel of the lessons: a card for each, which opens it as a page of its own, beside this
    one."""
    head = prose(f"<h2>Lessons</h2><p>{LESSONS_LEAD}</p>", "ex-lead")
    cards = prose(
        f'<ol class="ex-lesson-cards">{"".join(map(_card, LESSONS.values()))}</ol>', "ex-lessons"
    )
    return Part([head, cards]).add_class("ex-panel")


def _card(row: Lesson) -> str:
    """Number, title, question, minutes, the lessons that it needs, essay and translation; the title
    is the link."""
    number = f"{row.number} · " if row.minutes else ""
    lessons = "lesson" if len(row.needs) == 1 else "lessons"
    needs = f"after {lessons} {listed(row.needs)}" if row.needs else ""
    chinese = (
        f'<a href="{row.chinese_file}" lang="zh-CN" target="_blank">中文</a>' if row.chinese else ""
    )
    minutes = f"{row.minutes} minutes" if row.minutes else ""
    about = " · ".join(filter(None, (minutes, needs, linked(row.essay), chinese)))
    return (
        f'<li><a href="{html.escape(row.file)}" target="_blank"><b>{number}{html.escape(row.title)}</b></a>'
        f"<p>{html.escape(row.question)}</p><small>{about}</small></li>"
    )


TAB = Tab("Learn", lambda _: lessons())
