"""`make quick` runs the tests that a person would run for a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from touched import ALWAYS, ROOT, is_quick, mirrors

TESTS = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]


@pytest.mark.parametrize(
    ("file", "mirror"),
    [
        ("explorer/theory/softmax.py", "tests/theory/test_softmax.py"),
        ("explorer/theory/sink.py", "tests/theory/test_softmax.py"),
        ("explorer/figures/why.toml", "tests/figures/test_why.py"),
        ("explorer/diagnosis/verdicts.toml", "tests/test_verdicts.py"),
        ("explorer/diagnosis/__init__.py", "tests/diagnosis/test_sentences.py"),
        ("plugins/serve/explorer_serve/kernels.py", "tests/serve/test_kernels.py"),
        ("tests/test_config.py", "tests/test_config.py"),
    ],
)
def test_a_file_has_a_mirror(file: str, mirror: str) -> None:
    assert Path(mirror) in mirrors(Path(file), TESTS)


@pytest.mark.parametrize(
    ("file", "mirrored"),
    [
        ("explorer/theory/softmax.py", "tests/theory/test_softmax.py"),
        ("explorer/app/map/panel.py", "tests/app/test_map_panel.py"),
        ("plugins/race/explorer_race/page/panel.py", "tests/race/test_race_panel.py"),
        ("explorer/tasks/frames.py", "tests/tasks/test_frames.py"),
    ],
)
def test_a_module_that_has_a_mirror_runs_no_other(file: str, mirrored: str) -> None:
    assert mirrors(Path(file), TESTS) == [Path(mirrored)]


def test_a_namesake_of_another_room_is_no_mirror() -> None:
    of_tasks = mirrors(Path("explorer/tasks/worker.py"), TESTS)
    assert {test.parent.name for test in of_tasks} == {"tasks"}
    of_page = mirrors(Path("plugins/serve/explorer_serve/jupyter/page.js"), TESTS)
    assert Path("tests/app/test_page.py") not in of_page


def test_what_is_always_run_is_there_and_quick() -> None:
    stems = {test.stem for test in TESTS if is_quick(test)}
    assert stems.issuperset(ALWAYS)
    assert not [test for test in TESTS if is_quick(test) and "browser" in test.parts]
