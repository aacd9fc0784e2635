"""A pool of two workers, which this process has for all tests of the room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from explorer import tasks
from explorer.tasks.pool import Pool


@pytest.fixture(scope="session")
def shared() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared: Pool, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """The place where this process's tasks are computed."""
    monkeypatch.setattr(tasks, "place", lambda: shared)
    return shared
