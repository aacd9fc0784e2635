"""The table of peers: rows of this project agree with the definitions, and one that fails is
reported as such."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.peers import worker as processes
from benchmarks.peers.kit import ROWS, STATISTICS, deviations, tolerance
from benchmarks.peers.model import SIZES, Subject, Values, reference, subject
from benchmarks.peers.report import page
from benchmarks.peers.rows import hooks, own_pass, own_probe, own_watch

SIZE = "4 × 128"
BARE = ROWS[0]


@pytest.fixture(scope="module")
def plain() -> Subject:
    """The smallest model of the table."""
    return subject(SIZES[SIZE])


@pytest.fixture(scope="module")
def expected() -> Values:
    """Its statistics in float64, from the definitions."""
    return reference(subject(SIZES[SIZE]))


@pytest.mark.parametrize(
    "row", [hooks, own_pass, own_watch, own_probe], ids=lambda row: row.__name__
)
def test_rows_agree(row, expected):
    found = deviations(row.prepare(subject(SIZES[SIZE]))(), expected)
    assert set(found) == set(STATISTICS)
    assert max(found.values()) <= tolerance(SIZES[SIZE].n_layers), found


def test_a_sample_variance_for_a_population_disagrees(expected):
    """One in 16,384 entries: the least wrong definition that there is."""
    entries = SIZES[SIZE].batch_size * SIZES[SIZE].n_ctx * SIZES[SIZE].d_model
    wrong = {
        "second_moment": [value * entries / (entries - 1) for value in expected["second_moment"]]
    }
    assert deviations(wrong, expected)["second_moment"] > tolerance(SIZES[SIZE].n_layers)


def test_missing_layers_disagree(expected):
    assert (
        deviations({"second_moment": expected["second_moment"][1:]}, expected)["second_moment"]
        == math.inf
    )


def test_the_page_is_drawn_of_the_record():
    docs = Path(processes.__file__).parents[2] / "docs"
    record = json.loads((docs / "peers.json").read_text(encoding="utf-8"))
    assert page(record) == (docs / "peers.md").read_text(encoding="utf-8")
