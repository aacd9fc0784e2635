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


def test_a_module_that_has_a_mirror_runs_no_other() -> None:
    assert mirrors(Path("explorer/theory/softmax.py"), TESTS) == [
        Path("tests/theory/test_softmax.py")
    ]


def test_what_is_always_run_is_there_and_quick() -> None:
    stems = {test.stem for test in TESTS if is_quick(test)}
    assert stems.issuperset(ALWAYS)
    assert not [test for test in TESTS if is_quick(test) and "browser" in test.parts]
