"""The chart's traits: what a browser is sent. What a browser does with it is tested in a
browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import traitlets
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from explorer import plotlyjs
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.parts import PageWidget
from explorer.app.widgets.runtime import FOLDERS, STYLE, Runtime, page_script
from explorer.figures.why import Why
from explorer.glossary import TERMS

SOURCE = Path(__file__).parents[2] / "explorer" / "app" / "widgets"


def figure(y: np.ndarray, description: str = "A line.") -> go.Figure:
    return go.Figure(
        {
            "data": [{"type": "scatter", "x": np.arange(len(y), dtype=np.float32), "y": y}],
            "layout": {"meta": {"description": description}},
        }
    )


def unpacked(array: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])


def test_arrays_are_sent_typed_and_masked_values_survive():
    chart = Chart()
    chart.show(figure(np.array([1, np.nan, 3], dtype=np.float32)))
    sent = chart.get_state()["figure"]["data"][0]
    assert sent["y"]["dtype"] == "f4"
    np.testing.assert_array_equal(unpacked(sent["y"]), np.array([1, np.nan, 3], dtype=np.float32))
    json.dumps(chart.get_state()["figure"], allow_nan=False)


def test_a_heat_map_of_128_tokens_takes_less_than_90_kilobytes():
    chart = Chart()
    chart.show(
        go.Figure(
            {
                "data": [{"type": "heatmap", "z": np.ones((128, 128), dtype=np.float32)}],
                "layout": {"template": go.layout.Template()},
            }
        )
    )
    assert len(json.dumps(chart.get_state()["figure"])) < 90_000


def test_show_replaces_the_whole_figure_and_takes_its_description():
    chart = Chart(title="Second moment", stale=True)
    chart.show(figure(np.zeros(2)), stale=True)
    assert chart.stale
    chart.show(figure(np.ones(5), "Five ones."))
    assert unpacked(chart.figure["data"][0]["y"]).tolist() == [1] * 5
    assert chart.description == "Five ones."
    assert not chart.stale
    chart.show(go.Figure())
    assert chart.figure["data"] == []
    assert chart.description == "Five ones."


def test_a_figure_may_come_as_plain_data():
    checked, plain = Chart(), Chart()
    data = {
        "data": [{"type": "scatter", "x": np.arange(3.0), "y": np.ones(3)}],
        "layout": {
            "meta": {"description": "Ones."},
            "template": {"data": {"scatter": [{"type": "scatter"}]}},
        },
    }
    checked.show(go.Figure(data))
    plain.show(data)
    assert plain.figure == checked.figure
    assert plain.description == "Ones."


def test_tones_are_three():
    chart = Chart(badge_tone="good")
    with pytest.raises(traitlets.TraitError, match="badge_tone"):
        chart.badge_tone = "purple"


def test_plotly_is_packed_once_and_whole():
    assert gzip.decompress(plotlyjs.packed()).decode() == get_plotlyjs()
    assert len(plotlyjs.packed()) < 1_600_000
    assert plotlyjs.packed() is plotlyjs.packed()


def test_the_part_of_plotly_is_of_the_same_version_under_its_licence():
    part = gzip.decompress(plotlyjs.part()).decode()
    assert len(plotlyjs.part()) < 500_000
    assert f"plotly.js (cartesian - minified) v{get_plotlyjs_version()}" in part[:100]
    assert "Licensed under the MIT license" in part[:200]
    assert "MIT License" in Path(plotlyjs.__file__).with_name("LICENSE").read_text()


def test_what_all_widgets_share_is_in_one_runtime():
    Runtime.shared().close()
    state = PageWidget(Chart()).get_state()
    runtime = Runtime.shared().get_state()
    assert runtime["key"] in state["_esm"]
    assert len(state["_esm"]) < 800  # what it says where the script does not come is in it
    assert not state.get("_css")
    assert gzip.decompress(runtime["plotly"]).decode() == get_plotlyjs()
    assert runtime["_esm"] == page_script()


def test_where_the_server_has_plotly_the_kernel_sends_it_only_when_asked(monkeypatch):
    monkeypatch.setenv(plotlyjs.SERVED, "yes")
    Runtime.shared().close()
    runtime, sent = Runtime.shared(), []
    monkeypatch.setattr(
        runtime.layout, "send", lambda content, buffers: sent.append((content, *buffers))
    )
    assert runtime.get_state()["plotly"] == b""
    for nonsense in ("plotl", None, ["plotly"], {"plotly": 1}):  # a browser may send anything
        runtime._handle_custom_msg(nonsense, [])
    assert not sent
    runtime._handle_custom_msg("plotly", [])
    ((content, packed),) = sent
    assert content == "plotly"
    assert gzip.decompress(packed).decode() == get_plotlyjs()
    runtime.close()


def test_the_script_has_the_view_of_every_part_and_no_other():
    folders = (SOURCE.parent, *FOLDERS)
    sources = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    views = {view for text in sources for view in re.findall(r'^    view = "(\w+)"$', text, re.M)}
    assert sorted(views) == sorted(re.findall(r"^views\.(\w+) = \1;$", page_script(), re.M))
    assert page_script().count("export ") == 1


def test_a_closed_runtime_is_made_anew():
    before = Runtime.shared()
    before.close()
    PageWidget(Chart())
    assert Runtime.shared() is not before


def test_one_runtime_however_many_threads_ask_first():
    Runtime.shared().close()
    found = []
    threads = [threading.Thread(target=lambda: found.append(Runtime.shared())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(runtime) for runtime in found}) == 1


def test_figures_may_come_from_any_thread_and_the_last_stays():
    chart = Chart()
    seen = []
    chart.observe(
        lambda change: seen.append(len(unpacked(change["new"]["data"][0]["y"]))), "figure"
    )

    def work() -> None:
        for length in range(1, 31):
            chart.show(figure(np.zeros(length)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == list(range(1, 31))
    assert len(unpacked(chart.figure["data"][0]["y"])) == 30


def test_a_browser_cannot_change_what_all_widgets_share():
    with pytest.raises(traitlets.TraitError, match="read-only"):
        Runtime.shared().plotly = b""


@pytest.mark.parametrize(
    "setting",
    [
        "showSendToCloud: false",
        'plotlyServerURL: ""',
        "displaylogo: false",
        "displayModeBar: false",
        "showTips: false",
        "typesetMath: false",
        "DecompressionStream",
        "Plotly?.purge(this.plot)",
        "plot.dataset.drawn",
    ],
)
def test_the_view_keeps_its_settings(setting):
    assert setting in page_script()


def test_no_underline_is_written_in_the_shorthand_that_webkit_drops():
    assert re.findall(r"text-decoration: *[^ ;]+ [^;]+;", STYLE) == []


@pytest.mark.parametrize(
    "forbidden", ["innerHTML", "insertAdjacentHTML", "outerHTML", "eval(", "new Function", "http"]
)
def test_the_view_makes_no_markup_from_text_and_asks_no_host(forbidden):
    # a name, which nobody asks for
    script = page_script().replace("http://www.w3.org/2000/svg", "")
    assert forbidden not in script + STYLE


def test_the_glossary_travels_once_with_all_that_a_text_opens():
    sent = Runtime.shared().get_state()["glossary"]
    assert set(sent) == {"terms", "marks", "lessons", "hosts"}
    assert len(sent["terms"]) == len(TERMS) > max(sent["marks"].values())
    assert sent["terms"][sent["marks"]["q"]]["source"] == "Poole et al. 2016, arXiv 1606.05340"
    assert sent["lessons"]["02_second_moment"] == [
        "Second moment",
        "lessons/02_second_moment.ipynb",
    ]
    assert len(json.dumps(sent)) < 40_000
    with pytest.raises(traitlets.TraitError, match="read-only"):
        Runtime.shared().glossary = {}


def test_the_line_below_a_caption_says_why_and_where_to_go_on():
    chart = Chart().explain(Why("It grows.", "07_residual", "Xiong et al. 2020"))
    told = (chart.why, chart.lesson, chart.source)
    assert told == ("It grows.", "07_residual", "Xiong et al. 2020, arXiv 2002.04745")
    assert chart.explain(Why()).why == ""
