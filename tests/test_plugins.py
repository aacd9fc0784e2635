"""The registry of plug-ins, with plug-ins of other people's distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import plugins
from explorer.plugins import KNOWN

NOISE = """
from explorer.plugins import Plugin

PLUGIN = Plugin(
    names={"spectrum": "explorer_noise.spectrum:spectrum"},
    tabs={"noise": "explorer_noise.page:TAB"},
    commands="explorer_noise.spectrum:add_commands",
    kinds={"noise": "explorer_noise.spectrum:compute"},
)
"""
SPECTRUM = """
import sys


def spectrum():
    return "white"


def compute(call):
    return call.body.encode()


def add_commands(add):
    add("noise").set_defaults(run=lambda choices: sys.stdout.write("white\\n") and None)
"""
PAGE = """
from typing import NamedTuple

from explorer.app.page import Tab
from explorer.app.widgets.parts import Part


class NoisePart(NamedTuple):
    color: str = "white"


class Noise(Part):
    part = NoisePart()

    def restore(self, part):
        self.part = part


TAB = Tab("Noise", lambda config: Noise(), part=NoisePart, after="explore")
"""
TRIED = """
import explorer as ex
from explorer.app.tabs import tabs
from explorer.command import run
from explorer.tasks.worker import outcome
from explorer.tasks.pool import Call

print(ex.spectrum(), "spectrum" in dir(ex))
print(list(tabs())[:2])
page = ex.dashboard('?tab=noise&state={"noise":{"color":"pink"}}')
print(page.opened, page.panels["noise"].part.color, page.link)
print(outcome("noise", Call("pink", b"", None, None, None, None)))
run(["noise"])
"""


def distribution(folder: Path, name: str, **files: str) -> Path:
    """A distribution with a plug-in, installed in a folder of its own."""
    package = folder / name / f"explorer_{name}"
    package.mkdir(parents=True)
    for file, text in files.items():
        (package / f"{file}.py").write_text(text, encoding="utf-8")
    info = folder / name / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[explorer.plugins]\n{name} = explorer_{name}:PLUGIN\n")
    return folder / name


def said(code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    """What a process says in which these distributions are installed."""
    paths = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plug_in_of_another_distribution_brings_what_it_registers(tmp_path: Path) -> None:
    noise = distribution(tmp_path, "noise", __init__=NOISE, spectrum=SPECTRUM, page=PAGE)
    told = said(TRIED, noise)
    assert told.stderr == ""
    assert told.stdout.splitlines() == [
        "white True",
        "['explore', 'noise']",
        "noise pink ?tab=noise&state=%7B%22noise%22:%7B%22color%22:%22pink%22%7D%7D",
        "({'done': True}, b'pink')",
        "white",
    ]


MOVED = """
import explorer as ex

page = ex.dashboard("?tab=noise")
panel = page.panels["noise"]
assert "state" not in page.link
before = panel.chart.figure
panel.controls.set_state({"values": {"n_layers": 30}})
assert panel.chart.figure != before
assert "from" in panel.chart.description
assert page.open_link('?tab=noise&state={"noise":{"settings":{"n_layers":7}}}') == []
panel.controls.set_state({"values": {"n_layers": 0}})
print(panel.part.settings.n_layers, panel.controls.refusal)
page.close()
"""


def test_the_tab_in_the_guide_has_a_slider_that_redraws_its_chart(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
    page = guide.partition("# explorer_noise/page.py\n")[2].partition("```")[0]
    told = said(
        MOVED, distribution(tmp_path, "noise", __init__=NOISE, spectrum=SPECTRUM, page=page)
    )
    assert told.stderr == ""
    assert told.stdout.startswith("7 Depth must be")


def test_a_plug_in_whose_package_is_gone_is_absent_and_a_broken_one_is_an_error(
    tmp_path: Path,
) -> None:
    gone = distribution(tmp_path, "gone")
    (gone / "explorer_gone").rmdir()
    code = "import explorer as ex; ex.nothing"
    assert "has no attribute 'nothing'" in said(code, gone).stderr
    broken = distribution(tmp_path, "broken", __init__="import not_there")
    assert "No module named 'not_there'" in said(code, broken).stderr


def test_a_name_that_is_taken_is_an_error(tmp_path: Path) -> None:
    init = "from explorer.plugins import Plugin\nPLUGIN = Plugin({}={{'{}': 'explorer_bad:TAB'}})\n"
    bad = distribution(tmp_path, "bad", __init__=init.format("tabs", "map"))
    told = said("from explorer.app.tabs import tabs; tabs()", bad)
    assert "tabs must have each name once; got 'map' for 'explorer_bad:TAB' and" in told.stderr
    lost = distribution(
        tmp_path,
        "lost",
        __init__=init.format("tabs", "lost").replace("explorer_bad", "explorer_lost.page"),
        page=PAGE.replace('after="explore"', 'after="nowhere"'),
    )
    told = said("from explorer.app.tabs import tabs; tabs()", lost)
    assert "after must be a tab, one of explore, map, " in told.stderr
    assert "got 'nowhere'" in told.stderr


@pytest.mark.plugins
def test_names_of_our_own_plug_ins_are_those_that_they_register() -> None:
    registered = {
        name: reference.split(".")[0] for name, reference in plugins.references("names").items()
    }
    assert registered == {name: package for package, names in KNOWN.items() for name in names}


def test_a_name_of_a_plug_in_that_is_absent_says_which_it_is() -> None:
    assert (
        plugins.absence("probe") == "; it is of the plug-in explorer_models, which is not installed"
    )
    assert plugins.absence("nothing") == ""
