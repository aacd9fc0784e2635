"""The table of peers: rows of this project agree with the definitions, and one that fails is
reported as such."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import pytest

from benchmarks.peers import worker as processes
from benchmarks.peers.install import wanted
from benchmarks.peers.kit import ROWS, STATISTICS, Row, deviations, tolerance
from benchmarks.peers.model import SIZES, Subject, Values, reference, subject
from benchmarks.peers.report import page, table
from benchmarks.peers.rounds import measured
from benchmarks.peers.rows import bare, hooks, own_pass, own_probe, own_watch
from benchmarks.peers.worker import Failed, Worker

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


def test_a_row_leaves_no_hook_and_no_gradient(plain):
    for row in (bare, hooks):
        row.prepare(plain)()
        assert all(parameter.grad is None for parameter in plain.model.parameters())
        assert not any(module._forward_hooks for module in plain.model.modules())


def test_a_row_that_cannot_be_imported_is_reported_and_stops_no_other():
    absent = Row("absent", "no_such_peer", distribution="no-such-peer")
    found = measured([BARE, absent], [SIZE], rounds=1)
    assert found[0]["sizes"][SIZE]["ratios"]
    assert "no_such_peer" in found[1]["failed"]
    assert "**absent was not measured**" in table(found, [SIZE])


def test_a_row_that_raises_or_dies_is_reported():
    worker = Worker(BARE)
    try:
        with pytest.raises(Failed, match="KeyError"):
            worker.ask("read", "no such size")
        os.kill(worker.process.result(), signal.SIGKILL)
        with pytest.raises(Failed, match="its process ended"):
            worker.ask("seconds")
    finally:
        worker.close()


def test_the_page_is_drawn_of_the_record():
    docs = Path(processes.__file__).parents[2] / "docs"
    record = json.loads((docs / "peers.json").read_text(encoding="utf-8"))
    assert page(record) == (docs / "peers.md").read_text(encoding="utf-8")


def test_requirements_name_every_peer():
    text = Path(processes.__file__).with_name("requirements.txt").read_text(encoding="utf-8")
    assert {row.distribution for row in ROWS if row.distribution} <= set(wanted(text))
