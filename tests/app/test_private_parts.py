"""The page's scripts read no private parts of other libraries: no name that begins with an
underscore."""

from __future__ import annotations

import re

import pytest

from explorer.app.widgets.runtime import APP

PRIVATE = re.compile(r"(?:\.|\[\s*[\"'`]|[{,]\s*)(_[a-zA-Z]\w*)")
"""A name with a leading underscore that is read of something: `a._b`, `a["_b"]`, `{ _b }`."""


def private_names(text: str) -> set[str]:
    return set(PRIVATE.findall(text))


@pytest.mark.parametrize("path", sorted(APP.rglob("*.js")), ids=lambda path: path.name)
def test_a_script_reads_no_private_parts(path):
    assert not private_names(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "plot._fullLayout",
        "plot?._fullLayout",
        "plot['_fullLayout']",
        'plot["_fullLayout"]',
        "const { _fullLayout } = plot",
        "const { data, _fullLayout: full } = plot",
    ],
)
def test_private_parts_are_found(text):
    assert private_names(text) == {"_fullLayout"}


@pytest.mark.parametrize(
    "text", ["reduce((_, index) => index)", "const long_name = a.b_c", "(event, _) => 1", "a[_b]"]
)
def test_other_names_are_not_private_parts(text):
    assert not private_names(text)
