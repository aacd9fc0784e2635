"""The panel Your model: the profile of a model that a person measured at home, beside what theory
expects of its twin.

The page never runs a visitor's code: it takes the numbers that `ex.probe` made of it. Until then it
shows an example."""

from __future__ import annotations

import html
import pickle
from collections.abc import Callable, Sequence
from typing import NamedTuple

from explorer import tasks
from explorer.app.page import Tab
from explorer.app.sentences import design_words, marks
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.files import FileEntry
from explorer.app.widgets.panel import Panel, Phase
from explorer.app.widgets.parts import Part, Words, prose, together
from explorer.app.widgets.verdict import Verdict, entry
from explorer.diagnosis import Finding, diagnose
from explorer.figures import FIGURES, Row, row_of
from explorer.profile import Profile
from explorer.stopping import Progress, Stop
from explorer.tasks.pool import Order, Task
from explorer.theory import predict

# The profile that is shown: a file that a browser hands over, or that of an example.


EXAMPLE = "an example: torch's own nn.TransformerEncoder"
LARGEST_BYTES = 4_000_000
"""A profile of a thousand layers with eight heads has half as many."""
MOST_LAYERS = 1024


class ProfileFile(FileEntry):
    """The entry of a file with a profile.

    Args:
        show: called with a profile and its words; None for the example.
    """

    def __init__(self, show: Callable[[Profile | None, str], None]) -> None:
        super().__init__(
            label="Profile",
            about="Profile of your model, as JSON",
            accept=".json,application/json",
            other="Show the example",
            now=EXAMPLE,
            most=LARGEST_BYTES,
        )
        self._show = show

    def receive(self, name: str, raw: bytes) -> None:
        """Shows the file, if it is a profile of some layers."""
        try:
            profile = readable(raw)
        except ValueError as error:
            self.refuse(f"Refused: {name}: {error}. The charts stay those of {self.now}.")
        else:
            self._use(profile, f"{profile.model or 'a model'}, from {name}")

    def put_back(self) -> None:
        """Shows the example."""
        self._use(None, EXAMPLE)

    def _use(self, profile: Profile | None, words: str) -> None:
        """Shows a profile under its name; None and the example's name for the example."""
        self.use(words, own=profile is not None)
        self._show(profile, words)


def readable(raw: bytes) -> Profile:
    """A profile from a file's bytes.

    Raises:
        ValueError: it is no measured profile with a stream, or has too many layers.
    """
    try:
        profile = Profile.from_json(raw.decode())
    except UnicodeDecodeError:
        raise ValueError("the file must be text, UTF-8") from None
    if profile.origin != "measured" or ("second_moment", "resid_post") not in profile.values:
        raise ValueError("the profile must be a measured one with a second_moment at resid_post")
    layers = profile["second_moment", "resid_post"].shape[1]
    if not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"the profile must have 1 to {MOST_LAYERS} layers; got {layers}")
    return profile


ROWS: tuple[Row, ...] = (*FIGURES.values(), row_of("weight_variance"))
HOW = """<h2>Your model</h2>
<p>Measure any <code>torch</code> model where it is, and bring the numbers: nothing of it is run here.</p>
<pre><code>import explorer as ex
open("profile.json", "w").write(ex.probe(model, batch).to_json())</code></pre>
<p>or, from a shell, <code>explorer probe package.module:factory &gt; profile.json</code></p>"""


class Job(NamedTuple):
    """A profile that is to be shown; None for the example, which is measured first."""

    profile: Profile | None
    words: str


class YourModel(Panel[Job, tuple[Profile, Profile | None]]):
    """The panel of a person's own model.

    Args:
        example: measures a model that everybody has.
        predict: the theory's profile of a twin.
        diagnose: findings of a measured profile.
    """

    def __init__(
        self,
        example: Callable[[], Profile],
        predict: Callable[..., Profile],
        diagnose: Callable[[Profile], Sequence[Finding]],
    ) -> None:
        self._example, self._predict, self._diagnose = example, predict, diagnose
        super().__init__(capacity=1)
        self.verdict = Verdict()
        self.charts = {
            row.name: Chart(title=row.title, caption=row.caption).explain(row.why()) for row in ROWS
        }
        self.file = ProfileFile(self._ask)
        self.about = Words().add_class("ex-words").add_class("ex-beware")
        self.cells = {
            name: Part([chart]).add_class("ex-cell") for name, chart in self.charts.items()
        }
        grid = Part([*self.cells.values()]).add_class("ex-charts")
        main = (
            Part([self.file, self.verdict, self.about, grid])
            .add_class("ex-main")
            .add_class("ex-beside")
        )
        self.children = [prose(HOW, "ex-lead"), main, self.status]
        self._ask(None, EXAMPLE)

    def _ask(self, profile: Profile | None, words: str) -> None:
        """Asks the panel's worker for a profile and its prediction."""
        self._enter(
            Phase.COMPUTING, f"{'Reading' if profile else 'Measuring'} {words}", fraction=2.0
        )
        self.worker.submit(Job(profile, words))

    def _work(self, job: Job, _: Stop, __: Progress) -> tuple[Profile, Profile | None]:
        """In the worker's thread: the measured profile, and theory's of its twin, None without
        one."""
        measured = self._example() if job.profile is None else job.profile
        twin = measured.twin or measured.config
        return measured, None if twin is None else self._predict(twin)

    def _receive(self, job: Job, result: tuple[Profile, Profile | None]) -> None:
        """Shows a profile: findings, a line on the model, and the charts."""
        measured, predicted = result
        self.verdict.findings = [entry(finding) for finding in self._diagnose(measured)]
        self.about.value = _about(measured)
        self._draw([profile for profile in (predicted, measured) if profile is not None])
        self._enter(Phase.IDLE, f"This is {job.words}", f"{measured.seconds:.2f} s to measure")

    def _fail(self, _: Job, message: str) -> None:
        """Shows why a profile could not be had."""
        self._enter(Phase.FAILED, message)

    def _draw(self, profiles: Sequence[Profile]) -> None:
        """Draws every chart that the profile has numbers for.

        Args:
            profiles: the prediction, where there is one, and the measured profile last.
        """
        measured, predicted = profiles[-1], profiles[0] if len(profiles) > 1 else None
        for row in ROWS:
            chart = self.charts[row.name]
            drawn = [
                profile for profile in profiles if not row.statistic or row.statistic in profile
            ] or [measured]
            has_row = row.statistic in measured if row.statistic else measured.pattern is not None
            self.cells[row.name].hidden = not has_row
            with together():
                chart.show(row.draw(drawn))
                chart.marks = " · ".join(marks(drawn))
                compared = predicted is not None and row.statistic in predicted
                chart.annotate(
                    row.caption, row.statistic, predicted, measured if compared else None
                )


def _about(profile: Profile) -> str:
    """One line on the model, its type and its twin. Names come from a stranger's file, and are
    escaped."""
    names = profile.layers
    blocks = f" Its {len(names)} blocks are {names[0]} to {names[-1]}." if len(names) > 1 else ""
    lines = (
        f"The lines are its twin's: {design_words(profile.twin)}"
        if profile.twin
        else "No theory: it has no twin"
    )
    lines += "".join(f"; {remark}" for remark in profile.remarks)
    kind = profile.dtype or "numbers of unknown type"
    return html.escape(f"{profile.model or 'A model'}, in {kind}.{blocks} {lines}.")


def example() -> Profile:
    """`example.encoder`, measured by a worker."""
    ((_, answer),) = tasks.answers([Task("example", "", Order.OTHER_SEEDS)], lambda: False)
    profile: Profile = pickle.loads(answer.result or b"")  # noqa: S301 - a worker's
    return profile


TAB = Tab("Your model", lambda _: YourModel(example, predict, diagnose))
