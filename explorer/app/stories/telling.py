"""`Telling`: a guided story on the page, step by step, with its questions."""

from __future__ import annotations

from typing import Any, Protocol, cast

import traitlets

from explorer.app.explore.panel import Explore
from explorer.app.link.links import Links
from explorer.app.page import ExplorePart, Page
from explorer.app.stories.daily import DAILY
from explorer.app.stories.dare import Daring
from explorer.app.stories.story import VERDICT, Step, Story
from explorer.app.view import View
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.live import Live
from explorer.app.widgets.parts import Part
from explorer.config import Config


class Strip(Part):
    """Cards that offer stories, or the current step of the open story, below the header.

    Traits:
        cards: `[{name, title, words}]`; none where the page tells no stories.
        shown: whether the cards are shown.
        step: `{title, number, count, words, look, text, options, said, open}`; empty while no story
            is open. `look` is the title of what to look at, `text` a question, `options` its
            answers (none: a line is drawn), `said` what came of it, `open` whether it still stands.

    Messages are lists: `["tell", name]`, `["next"]`, `["back"]`, `["leave"]`, `["reveal", guess]`
    and `["skip"]`."""

    view = "strip"
    cards = traitlets.List(traitlets.Dict()).tag(sync=True)
    shown = traitlets.Bool(False).tag(sync=True)
    step = traitlets.Dict().tag(sync=True)


MARK = "ex-looked"
"""Class of the box around what a step says to look at, and of its grid where it is one of the small
pictures there.

The style sheet cannot ask for that by `:has`: a browser would look for it at every change of a
chart, which took a third of the updates of a dragged slider."""
LARGE = 2
"""The first charts of a grid, which are no pictures."""


def box_of(widget: Part, root: Part) -> Part | None:
    """The box below a widget, or itself, that has another one as its child; None where there is
    none."""
    children = getattr(root, "children", ())
    if widget in children:
        return root
    return next(filter(None, (box_of(widget, child) for child in children)), None)


class Host(Protocol):
    """The page of a story, as far as the story sets it."""

    view: View
    panels: dict[str, Part]

    @property
    def opened(self) -> str:
        """Name of the panel that is shown."""

    def restore(self, page: Page) -> None:
        """Makes a page."""


class Telling:
    """The strip below the header, and the actions of its buttons.

    Args:
        page: the page.
        links: reads the links of the steps, and finds out whether the page has every panel that the
            stories open.
    """

    def __init__(self, page: Host, links: Links) -> None:
        self._page, self._links = page, links
        self.strip, self.daring = Strip(), Daring()
        self.strip.on_msg(lambda _, content, __: self.act(content))
        self.story: Story | None = None
        self.number = 0
        """Number of the step, from 1."""
        self._shown: dict[str, Any] = {}
        self._framed: tuple[
            Part, ...
        ] = ()  # the box around what is to be looked at, and its grid of pictures
        cards = [(row.name, row.title, row.words) for row in links.stories.values()]
        if cards:
            cards.append(
                (DAILY, "The guess of the day", "One curve to draw, the same for everybody.")
            )
        self.strip.cards = [
            {"name": name, "title": title, "words": words} for name, title, words in cards
        ]

    @property
    def place(self) -> tuple[str, int] | None:
        """The story and its step, as the page's record has them; None where no story is open."""
        return (self.story.name, self.number) if self.story else None

    @property
    def _step(self) -> Step | None:
        return self.story.steps[self.number - 1] if self.story else None

    def restore(self, place: tuple[str, int] | None) -> None:
        """Goes to a step, on the page as it is; leaves the story where there is none."""
        if place is None:
            self.leave()
        elif place != self.place and (story := self._links.story(place[0])):
            self._tell(story, place[1])

    def act(self, message: object) -> None:
        """Handles a message of the strip, or of the chart that a question is about; believes none
        of them."""
        match message:
            case ["tell", str() as name] if story := self._links.story(name):
                self._go(story, 1)
            case ["next"] if self.story and self.number < len(self.story.steps):
                self._go(self.story, self.number + 1)
            case ["back"] if self.story and self.number > 1:
                self._go(self.story, self.number - 1)
            case ["leave"]:
                self.leave()
            case ["skip"]:
                self._reveal(None, guessed=False)
            case ["reveal", guess]:
                self._reveal(guess, guessed=True)

    def leave(self) -> None:
        """Ends the story; the page stays as it is."""
        if self.story:
            self._explore.ask(None, Config())
            self.story, self.number = None, 0
            self._frame()
            self._shown = self.strip.step = {}

    def _go(self, story: Story, number: int) -> None:
        """Sets the page as a step's link has it: the panel that it opens, and no other one."""
        self.strip.shown = False  # the stories' cards, from which the story may have been chosen
        self._page.restore(self._page_of(story, number))

    def _page_of(self, story: Story, number: int) -> Page:
        """The page with the panel that a step opens, and what its link sets there."""
        page, _ = self._links.parse(story.steps[number - 1].link)
        return Page(
            page.open,
            {name: part for name, part in page.panels.items() if name == page.open},
            self._page.view,
            (story.name, number),
        )

    def _tell(self, story: Story, number: int) -> None:
        self.daring.leave()
        self.story, self.number = story, number
        step = story.steps[number - 1]
        self._shown = {
            "title": story.title,
            "number": number,
            "count": len(story.steps),
            "words": step.words,
            "text": step.question.text if step.question else "",
            "said": "",
            "look": "",
            "options": list(getattr(step.question, "options", ())),
        }
        explore = self._page_of(story, number).panels.get("explore", ExplorePart())
        self._explore.ask(step.question, explore.design, self._say, self.act)
        self.strip.step = self._shown

    def point(self) -> None:
        """Frames what the step says to look at, on the panel that is open now."""
        step = self._step
        look = self._look_at(step.look_at) if step else ""
        if step and look != self._shown["look"]:
            self._shown = self.strip.step = self._shown | {"look": look}

    def _look_at(self, name: str) -> str:
        """Frames a chart of the open panel, or its verdict, and gives its title; empty where there
        is no such thing."""
        panel = self._page.panels[self._page.opened]
        self._frame()
        if not isinstance(panel, Live) or name not in (*panel.charts, VERDICT):
            return ""
        target = panel.verdict if name == VERDICT else panel.charts[name]
        if box := box_of(target, panel):
            grid = box_of(box, panel)
            self._frame(box, *([grid] if grid and grid.children.index(box) >= LARGE else []))
        return target.title if isinstance(target, Chart) else "Verdict"

    def _frame(self, *boxes: Part) -> None:
        """Marks boxes, and no others."""
        for box in self._framed:
            box.remove_class(MARK)
        self._framed = tuple(box.add_class(MARK) for box in boxes)

    def _reveal(self, guess: object, *, guessed: bool) -> None:
        """Ends a question: with the page of its step, wherever the controls were moved
        meanwhile."""
        if self.story is None or not self._explore.asking.stands:
            return
        try:
            checked = self._explore.asking.check(guess) if guessed else None
        except ValueError as error:
            self._say(f"{str(error).capitalize()}.")
            return
        self._say("Measuring …")
        self._explore.reveal(checked)
        if self._explore.controls.config != self._explore.asking.config:
            self._page.restore(self._page_of(self.story, self.number))

    def _say(self, words: str) -> None:
        """Shows what came of a question; called from any thread."""
        self._shown = self.strip.step = self._shown | {
            "said": words,
            "open": self._explore.asking.stands,
        }

    @property
    def _explore(self) -> Explore:
        return cast(Explore, self._page.panels["explore"])
