"""`Asking`: the open question about a design: the charts that it withholds, and the answer to a guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go

from explorer.app.explore.question import Choose, Draw, Question
from explorer.app.widgets.chart import Chart
from explorer.config import Config
from explorer.figures.data import Plain
from explorer.figures.layers import asked, with_guess, withheld
from explorer.profile import Profile


class Asking:
    """A question, from the moment when it is asked until another one is, or none. Callers hold the panel's lock.

    Args:
        charts: of the panel, by name.
    """

    def __init__(self, charts: Mapping[str, Chart]) -> None:
        self._charts = charts
        self.question: Question | None = None
        self.config = Config()
        self.revealed = False
        self.guess: Any = None
        self.answer = ""
        self._say: Callable[[str], None] = lambda _: None

    @property
    def stands(self) -> bool:
        """Whether a question waits for its answer."""
        return self.question is not None and not self.revealed

    def ask(self, question: Question | None, config: Config, say: Callable[[str], None],
            act: Callable[[object], None]) -> None:
        """Asks a question, or takes back the one that stands.

        Args:
            config: the design that it is about.
            say: called with the outcome, once the answer is revealed and measured.
            act: called with what the chart's buttons send.
        """
        self._offer({})
        self.question, self.config, self._say = question, config, say
        self.revealed, self.guess, self.answer = False, None, ""
        if isinstance(question, Draw):
            self._charts[question.chart].on_ask = act
            low, high = question.extent
            self._offer({"depths": question.depths(config.n_layers), "low": low, "high": high,
                         "log": question.statistic.log})

    def check(self, guess: object) -> Any:
        """A guess that came from a browser.

        Raises:
            ValueError: it is none, or none is asked for.
        """
        if self.question is None or self.revealed:
            raise ValueError("no question stands")
        return self.question.check(guess, self.config.n_layers)

    def reveal(self, guess: Any) -> None:
        """Ends the withholding; `guess` is one that was checked, or None."""
        self.revealed, self.guess = True, guess
        self._offer({"said": "Measuring …"})

    def measured(self, measured: Profile | None, predicted: Profile | None) -> None:
        """Says how near the guess was, once the design that was asked about is measured."""
        if self.question is None or not self.revealed or self.answer or not measured or measured.config != self.config:
            return
        said = self.question.reveal
        if self.guess is not None:
            theory = predicted if predicted and predicted.config == self.config else None
            said = f"{self.question.judge(self.guess, measured, theory)} {said}"
        self.answer = said
        self._offer({"said": said})
        self._say(said)

    def _offer(self, ask: dict[str, Any]) -> None:
        if isinstance(self.question, Draw):
            self._charts[self.question.chart].ask = ask

    def figure(self, name: str) -> go.Figure | None:
        """The figure that stands in for a chart while a question is open; None where the chart may be shown."""
        question = self.question
        if question is None or self.revealed:
            return None
        if name != question.chart:
            return withheld()
        return asked(question.statistic, self.config.n_layers, question.extent)

    def guessed(self, name: str, figure: Plain, config: Config | None) -> go.Figure | Plain:
        """A figure of `FIGURES`, with the line that was guessed of its design."""
        question = self.question
        if self.guess is None or config != self.config or not isinstance(question, Draw) or name != question.chart:
            return figure
        depths = question.depths(self.config.n_layers)
        return with_guess(go.Figure(figure), depths, question.values(self.guess, self.config.n_layers, depths))


def options(question: Question | None) -> list[str]:
    """The answers that a question offers; none where it is answered otherwise."""
    return list(question.options) if isinstance(question, Choose) else []
