"""The Map panel without a browser: controls set, cells computed by the real theory and the real
model, clicks."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from explored import plain
from linked import state
from numpy.testing import assert_allclose, assert_array_equal
from watched import Watched

import explorer as ex
from explorer.app.dashboard import Dashboard
from explorer.app.map import panel as map_panel
from explorer.app.map.panel import MapPanel, minutes
from explorer.app.map.plan import NOTHING, MapPart, Plan
from explorer.app.setups import setups
from explorer.app.tabs import tabs
from explorer.app.view import View
from explorer.app.widgets.panel import Phase
from explorer.app.widgets.slider_steps import sliders
from explorer.config import Config
from explorer.ends import endings
from explorer.limits import process_count
from explorer.numbers import number
from explorer.profile import Profile
from explorer.sweeping.cell import Cell, find
from explorer.sweeping.workers import Here, Outside, Workers

TINY = Config(d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=2, norm_placement="none")
FEW: dict[str, Any] = {
    "x_from": 0.5,
    "x_to": 2.0,
    "x_count": 3,
    "y_from": 1.0,
    "y_to": 3.0,
    "y_count": 3,
}
MANY: dict[str, Any] = FEW | {"x_count": 16, "y_to": 6.0, "y_count": 6}


class Page(Watched[MapPanel]):
    """The panel, and what its chart holds."""

    @property
    def traces(self) -> dict[str, Any]:
        return {trace["name"]: trace for trace in self.panel.picture.chart.figure.get("data", ())}

    @property
    def numbers(self) -> xr.Dataset:
        return self.panel._shown().sweep.dataset()

    def act(self) -> None:
        """The button of the status line."""
        self.panel.status.handle("action", [])

    def send(self, message: object) -> None:
        """A click on the chart, or what somebody makes of it."""
        self.panel.picture.chart.handle(message, [])


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are computed on the panel's thread, as where memory is short."""
    monkeypatch.setattr(map_panel, "Outside", lambda _: Workers(Here()))


@pytest.fixture
def page() -> Iterator[Page]:
    """A map that is computed."""
    page = Page(MapPanel(Plan(**FEW), TINY))
    page.until("idle")
    yield page
    page.close()
    assert not page.worker.alive


def ends(of: Callable[[Config], Profile], xs: Sequence[float], **fields: Any) -> list[float]:
    """The second moments that designs over the init variance end with."""
    designs = (TINY.replace(init_variance=x, **fields) for x in xs)
    return [endings(of(design))["second_moment"].middle for design in designs]


def test_every_cell_is_measured_and_the_lines_are_theory_s(page: Page) -> None:
    assert page.status.text == "Measured 3 × 3 cells"
    heat = page.traces["Second moment, measured"]
    xs, ys = heat["x"], heat["y"]
    assert (xs, ys) == ([0.5, 1.0, 2.0], [1, 2, 3])
    measured, theory = ([ends(of, xs, n_layers=y) for y in ys] for of in (ex.measure, ex.predict))
    assert_allclose(plain(heat["z"]), np.log10(measured), rtol=1e-6)
    assert_allclose(plain(heat["customdata"])[..., 3], theory, rtol=1e-6)
    assert any(name.startswith("predicted") for name in page.traces), "contour lines"
    assert page.picture.chart.title == "Second moment over init variance and depth"


def test_another_statistic_is_another_picture_of_the_same_numbers(page: Page) -> None:
    computed = page.worker.computations
    page.set(statistic="kurtosis")
    assert "Kurtosis of features, measured" in page.traces
    assert page.worker.computations == computed
    assert page.phase is Phase.IDLE


def test_another_range_is_another_map_and_the_first_is_remembered(page: Page) -> None:
    before = page.numbers
    page.set(x_from=0.25)
    assert page.comes(
        lambda: page.phase is Phase.IDLE and page.traces["Second moment, measured"]["x"][0] == 0.25
    )
    page.choose(x_from=0.5)
    xr.testing.assert_identical(page.numbers, before)  # the seconds too: nothing was computed again


def test_theory_alone_measures_nothing(page: Page) -> None:
    page.choose("Predicted 3 × 3 cells", compute="theory")
    assert list(page.numbers.origin.values) == ["predicted"]
    assert "Second moment, measured" not in page.traces


def test_stop_keeps_what_was_found_and_going_on_computes_the_rest(page: Page) -> None:
    page.set(**MANY)
    assert page.comes(
        lambda: (
            page.panel._shown().job.fields["n_layers"][-1] == 6
            and page.panel._shown().sweep.done > page.panel._shown().sweep.total // 2 + 5
        )
    )
    page.act()
    page.until("paused", "Stopped")
    seconds = page.numbers.seconds.values
    found, status = int(np.isfinite(seconds).sum()), page.status
    assert found < seconds.size
    assert status.action == "Resume"
    assert status.detail.endswith(f"of {seconds.size} cells")
    page.act()
    page.until("idle", "Measured 16 × 6 cells")
    after = page.numbers.seconds.values
    assert np.isfinite(after).all()
    kept = np.isfinite(seconds)
    assert_array_equal(after[kept], seconds[kept])


def test_what_cannot_be_is_said_and_the_last_map_stays(page: Page) -> None:
    before = page.picture.chart.figure
    for choice, sentence in (
        (
            {"x_from": 0.0},
            "Across from must be a finite number between 0.001 and 1000, as Init variance; got 0",
        ),
        ({"y_to": 2.5}, "Up to must be a whole number between 1 and 1024, as Depth; got 2.5"),
        ({"x_from": 3.0}, "Across from must be less than Across to; got 3 and 2"),
        ({"x_count": 61}, "Values across must be a whole number between 2 and 60; got 61"),
        ({"x_to": "<b>"}, "Across to must be a finite number; got '<b>'"),
        ({"x_to": 1e400}, "Across to must be a finite number; got inf"),
    ):
        page.set(**choice)
        page.until("refused", f"Refused: {sentence}.")
        assert page.picture.chart.figure is before
        assert page.status.action == "Undo"
        page.act()
        page.until("idle")
        assert page.controls.config == Plan(**FEW)
        before = page.picture.chart.figure


def test_a_map_that_would_take_hours_is_refused_before_it_starts(page: Page) -> None:
    before, computed = page.picture.chart.figure, page.worker.computations
    plan = Plan(x="alpha", x_from=0.0, x_to=2.0, x_count=60, y_to=256.0, y_count=60)
    page.restore(MapPart(Config(d_model=2048, n_heads=16, n_ctx=1024), plan))
    page.until("refused", "the map must take at most about 120 minutes of one processor; got about")
    assert page.picture.chart.figure is before
    page.act()
    page.until("idle")
    assert page.controls.config == Plan(**FEW)
    assert page.worker.computations <= computed + 1  # the first map, which it has
    assert page.design == TINY


def test_a_design_that_the_rules_refuse_is_a_cell_with_its_reason(page: Page) -> None:
    page.set(y="n_heads", y_count=5, statistic="logit_std")
    assert page.comes(lambda: page.phase is Phase.IDLE and "n_heads" in page.numbers.coords)
    page.choose("cells", y_from=1.0, y_to=32.0)
    assert page.status.detail == "6 failed"  # 32 heads in a width of 16: both origins
    reasons = page.numbers.failure.sel(n_heads=32).values
    assert all("n_heads" in str(reason) for reason in reasons.ravel())
    assert "no value" in page.traces, "what has the reason on hovering"
    page.send(["pick", 1.0, 32])  # and no click makes it a design


@pytest.mark.plugins
def test_cells_can_be_trained(page: Page) -> None:
    page.set(x="learning_rate")
    page.choose("Trained 2 × 2 cells", x_count=2, y_to=2.0, y_count=2, steps=2)
    drop = page.numbers.loss_drop.sel(origin="trained")
    assert np.isfinite(drop.values).all()
    assert "Loss below the unigram's, trained" in page.traces
    assert page.picture.chart.caption == "Dots: trained; cells without one are still to come."


@pytest.mark.plugins
def test_a_map_says_from_its_first_cell_on_how_long_it_takes(page: Page) -> None:
    seen: list[str] = []
    page.status.observe(lambda change: seen.append(change["new"]), names="detail")
    page.set(x="learning_rate")
    page.set(x_from=1e-3, x_count=16, y_to=6.0, y_count=6, steps=1000)
    assert page.comes(lambda: any("of 96" in words for words in seen))
    page.act()
    page.until("paused")
    first = next(words for words in seen if "of 96" in words)
    (said,) = re.findall(r"^[01] of 96 cells · about (\d+) min left$", first)
    assert float(said) == pytest.approx(
        minutes(page.panel._sweep(page.panel._job)) / process_count(), rel=0.1
    )


def test_the_caption_speaks_of_lines_where_there_are_some(page: Page) -> None:
    chart = page.picture.chart
    assert "measured" in chart.caption
    assert chart.caption.endswith("Lines: theory.")
    page.choose("Predicted 3 × 3 cells", compute="theory")
    assert "measured" not in chart.caption
    assert "Lines: theory." in chart.caption
    page.panel._vary({"norm_placement": "post"})  # the second moment is 1 in each cell
    assert page.comes(lambda: "Lines" not in chart.caption and page.phase is Phase.IDLE)
    assert not any(trace.get("mode") == "lines" for trace in page.traces.values())


def test_a_map_of_one_axis_has_a_line_and_dots(page: Page) -> None:
    page.choose("Measured 3 cells", y=NOTHING)
    dots, predicted, xs = page.traces["measured"], page.traces["predicted"], [0.5, 1.0, 2.0]
    cells = [Cell("predicted", TINY.replace(init_variance=x), ("second_moment",)) for x in xs]
    for trace, expected in (
        (dots, ends(ex.measure, xs)),
        (predicted, [result.numbers["second_moment"] for result in find(cells)]),
    ):
        assert plain(trace["x"]).tolist() == xs
        assert_allclose(plain(trace["y"]), expected, rtol=1e-6)
    assert plain(page.traces["now"]["x"]).tolist() == [1.0] * 3
    chart = page.picture.chart
    assert chart.title == "Second moment over init variance"
    assert chart.caption.endswith("Bars: lowest to highest seed.")
    assert page.controls.absent == ["y_from", "y_to", "y_count"]
    page.set(statistic="kurtosis")
    assert page.picture.chart.title == "Kurtosis of features over init variance"
    page.restore(MapPart(TINY.replace(logit_cap=0.01), page.part.plan))
    page.choose("Measured 3 cells", statistic="activation_gradient")
    limited = "Bars: lowest to highest seed. Theory is limited in 1 of 3 cells: not covered"
    assert limited in page.picture.chart.caption
    assert page.traces["predicted"]["line"]["dash"] == "dot"
    page.choose("Measured 3 × ", y="n_layers")
    assert page.controls.absent == []


def test_a_line_of_refused_designs_says_why(page: Page) -> None:
    page.restore(MapPart(TINY, Plan(x="n_heads", x_from=1, x_to=32, y=NOTHING)))
    page.until("idle", "Measured 6 cells")
    assert page.status.detail == "2 failed"
    (reason,) = page.traces["failed"]["hovertext"]
    assert reason.startswith(
        "Heads 32 heads<br>d_model must be divisible by n_heads; got 16 and 32"
    )


@pytest.mark.plugins
def test_cells_of_one_axis_can_be_trained(page: Page) -> None:
    page.set(y=NOTHING)
    page.set(x="learning_rate")
    page.choose("Trained 2 cells", x_count=2, steps=2)
    assert "predicted" not in page.traces
    drop = page.numbers.loss_drop.sel(origin="trained").values
    below = page.traces["trained, below the axis"]["hovertext"]
    for words, value in zip(below, drop, strict=True):
        assert words.endswith(f"trained: {number(value)}")
    assert page.picture.chart.caption == ""


def test_a_statistic_that_no_cell_can_have_is_a_sentence(page: Page) -> None:
    """A map of a design without attention has no spread of logits: not nan, and none failed."""
    for y in ("n_layers", NOTHING):
        page.restore(
            MapPart(TINY.replace(attention="none"), Plan(**FEW | {"y": y}, statistic="logit_std"))
        )
        page.until("idle", "Measured 3")
        figure = page.picture.chart.figure
        assert figure["layout"]["annotations"][0]["text"] == "This design has no attention."
        assert page.picture.chart.caption == ""


def test_messages_that_make_no_sense_are_ignored(page: Page) -> None:
    before = page.part
    for message in (
        None,
        "pick",
        ["pick"],
        ["pick", 1],
        ["pick", "a", "b"],
        ["pick", None, 1],
        ["pick", 1, 2, 3],
        [["pick"], 1, 2],
        7,
    ):
        page.send(message)
        page.take.handle(message, [])
        page.maps.handle(message, [])
        assert page.part == before, message
        assert page.phase is Phase.IDLE, message


@pytest.fixture
def whole() -> Iterator[Dashboard]:
    """Explore and the map, of small designs."""
    whole = Dashboard(TINY.replace(n_layers=2), {name: tabs()[name] for name in ("explore", "map")})
    whole.open_link(
        "?tab=map&n_layers=2&d_model=16&n_heads=2&n_ctx=8&batch_size=1&n_seeds=2&norm_placement=none"
        + state(
            map={
                "design": TINY.changed,
                "plan": {"x_from": 0.5, "x_to": 2, "x_count": 3, "y_to": 3, "y_count": 3},
            }
        )
    )
    yield whole
    whole.close()


def test_a_click_puts_the_cell_s_design_on_explore(whole: Dashboard) -> None:
    page, explore = Page(whole.panels["map"]), whole.panels["explore"]
    assert whole.header.said == ""
    assert page.design == TINY
    page.until("idle")
    assert plain(page.traces["now"]["y"]).tolist() == [2]
    whole.follow()
    for nonsense in (["pick", True, 1], ["pick", 0.5, True], ["pick", "0.5", 3], ["pick", 0.5]):
        page.send(nonsense)
        assert whole.opened == "map"
    page.send(["pick", 0.50001, 3])
    assert whole.opened == "explore"
    assert explore.controls.config == TINY.replace(init_variance=0.5, n_layers=3)
    whole.follow()
    assert whole.header.undoes
    whole.show("map")
    assert (page.traces["now"]["x"], page.traces["now"]["y"]) == ([0.5], [3.0]), (
        "the star is where the page is"
    )
    whole.header.handle(["undo"], [])
    assert (whole.opened, explore.controls.config) == ("map", TINY.replace(n_layers=2))


def test_a_button_beside_a_slider_opens_its_map_and_a_dot_leads_back(whole: Dashboard) -> None:
    explore, page = whole.panels["explore"], Page(whole.panels["map"])
    assert explore.controls.maps == list(sliders(Config))
    whole.show("explore")
    whole.follow()
    before = whole.page
    for nonsense in (["map"], ["map", 3], ["map", "norm_placement"], ["map", "alpha", 1], "map"):
        explore.controls.handle(nonsense, [])
        assert whole.opened == "explore"
    explore.controls.handle(["map", "n_layers"], [])
    whole.follow()
    assert whole.opened == "map"
    plan = Plan(x="n_layers", x_from=1, x_to=64, y=NOTHING)
    assert page.part == MapPart(explore.controls.config, plan)
    page.choose("Measured 3 cells", x_to=3.0)
    assert "A click on a point" in page.picture.chart.caption
    whole.follow()
    whole.header.handle(["undo"], [])
    whole.header.handle(["undo"], [])
    assert whole.page == before
    whole.header.handle(["redo"], [])
    whole.header.handle(["redo"], [])
    page.until("idle", "Measured 3 cells")
    page.send(["pick", 3.00001, 7.0])
    assert whole.opened == "explore"
    assert explore.controls.config == TINY.replace(n_layers=3)


def test_there_is_no_button_where_the_page_has_no_map(whole: Dashboard) -> None:
    whole.look(View(panels=("explore",)))
    assert whole.panels["explore"].controls.maps == []
    whole.look(View(embed=True))
    assert whole.panels["explore"].controls.maps == []
    whole.look(View(panels=("explore", "map")))
    assert whole.panels["explore"].controls.maps == list(sliders(Config))
    alone = Dashboard(TINY, {"explore": tabs()["explore"]})
    assert alone.panels["explore"].controls.maps == []
    alone.close()


def test_a_design_comes_from_explore_or_from_the_list(whole: Dashboard) -> None:
    panel, explore = whole.panels["map"], whole.panels["explore"]
    explore.controls.apply({"alpha": 0.5, "n_layers": 4})
    panel.take.handle("take", [])
    assert panel.design == explore.controls.config
    assert panel.take.note.endswith("4 layers of width 16.")
    panel.named_designs.set_state({"values": {"preset": "post_ln"}})
    assert (panel.design.norm_placement, panel.design.d_model) == ("post", 16)
    for name, row in setups("map").items():
        panel.maps.handle(name, [])
        assert panel.part == row.part
        assert panel.maps.note == row.words


@pytest.mark.parametrize("y", ["n_layers", NOTHING])
def test_what_is_taken_home_is_what_the_map_shows(page: Page, y: str) -> None:
    page.set(y=y)
    page.until("idle", "Measured 3 × 3" if y == "n_layers" else "Measured 3 cells")
    sent: dict[str, bytes] = {}
    page.home.send = lambda content, buffers: sent.update({content["file"]: buffers[0]})
    for place, row in enumerate(page.home.rows):
        page.home.handle(["save", place], [])
        assert page.home.note.startswith("Saved"), row
    numbers = page.numbers
    xr.testing.assert_identical(xr.load_dataset(io.BytesIO(sent["map.nc"])), numbers)
    frame = pd.read_csv(
        io.BytesIO(sent["map.csv"]), keep_default_na=False, na_values={"second_moment": [""]}
    )
    expected = numbers.to_dataframe().reset_index()
    assert frame.columns.tolist() == expected.columns.tolist()
    assert frame.second_moment.tolist() == pytest.approx(
        expected.second_moment.tolist(), rel=1e-15, nan_ok=True
    )
    left: dict[str, Any] = {}
    exec(compile(sent["map.py"].decode(), "map.py", "exec"), left)  # noqa: S102 - what this test is about
    xr.testing.assert_identical(left["cells"].drop_vars("seconds"), numbers.drop_vars("seconds"))
    assert b"@" in sent["map.bib"]


class Never(Executor):
    """Computes nothing."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        """A future that is never done."""
        return Future()


def test_before_there_is_a_map_there_is_nothing_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_panel, "Outside", lambda _: Workers(Never()))
    page = Page(MapPanel(Plan(**FEW), TINY))
    page.home.handle(["save", 1], [])
    assert page.home.note == "Refused: map must be begun to be saved; got none yet."
    page.close()


def test_processes_compute_the_same(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_panel, "Outside", Outside)
    other = Page(MapPanel(Plan(**FEW), TINY))
    other.until("idle")
    xr.testing.assert_identical(
        other.numbers.drop_vars("seconds"), page.numbers.drop_vars("seconds")
    )
    other.close()
