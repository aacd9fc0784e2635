"""Race panels that several files open."""

from __future__ import annotations

import pytest
from raced import LONG, Open, Page, opened

open_race = pytest.fixture(name="open_race")(opened)


@pytest.fixture
def page(open_race: Open) -> Page:
    return open_race()


@pytest.fixture
def running(open_race: Open) -> Page:
    """A race that has begun, and does not end by itself."""
    page = open_race(steps=LONG)
    page.begin()
    return page
