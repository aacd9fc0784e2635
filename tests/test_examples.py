"""Examples of the package's docstrings: each public name has one, and those with a prompt give what
they say."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import explorer as ex

PACKAGE = Path(ex.__file__).parent
PUBLIC = sorted(set(dir(ex)) - {"PRESETS"})
"""Functions and classes; a plug-in's names are among them where it is installed."""
EACH = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.plugins] * (name not in ex.__all__)) for name in PUBLIC],
)
FILES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")
]
"""Modules with examples."""
PARSER = doctest.DocTestParser()


def example(name: str) -> str:
    """The text below "Example:" in a public name's docstring, as it stands alone."""
    text = inspect.cleandoc(getattr(ex, name).__doc__ or "")
    section = re.search(r"^Example:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    assert section, f"explorer.{name} has no Example: in its docstring"
    return inspect.cleandoc(section[1])


def failures(test: doctest.DocTest) -> str:
    """What an example gives that it does not say; empty where there is nothing."""
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return "".join(report)


@EACH
def test_each_public_name_has_an_example_that_uses_it(name: str) -> None:
    is_class = isinstance(getattr(ex, name), type)
    # a function is called; a record may be one that a function gives
    assert ("ex." if is_class else f"ex.{name}(") in example(name)


@EACH
def test_the_example_of_a_public_name_is_true(name: str) -> None:
    text = example(name)
    if ">>>" in text:
        assert not failures(PARSER.get_doctest(text, {"ex": ex}, name, None, None))
    else:  # it takes longer, or needs a notebook: Python all the same, below a sentence or alone
        code = text.rpartition("::\n")[2]
        assert ast.parse(inspect.cleandoc(code)).body


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_examples_of_a_module_are_true(path: Path) -> None:
    """Of names that are not public; those of public names are tried by name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    names = {**vars(module), "ex": ex, "Config": ex.Config}
    public = {getattr(ex, name).__doc__ for name in PUBLIC}
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, globs=names):
        if test.docstring not in public:
            assert not failures(test)


def test_an_example_that_is_not_true_is_found() -> None:
    wrong = PARSER.get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert "Got:\n    2" in failures(wrong)
