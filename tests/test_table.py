"""The table of trainings: what belongs into it, that it goes on where it stood, and that settings
are not mixed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.table import (
    COLUMNS,
    DEPTHS,
    KEY,
    OUTPUT,
    SEEDS,
    SHOWN,
    SHOWN_SEEDS,
    WARMUP,
    Case,
    cases,
    row,
    shown,
)
from explorer.schemes.preset import PRESETS


def write(path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return row(Case("rezero", WARMUP, 6, 1))


def test_every_design_stands_in_it_with_and_without_warm_up() -> None:
    found = list(cases())
    often = len(PRESETS) * SEEDS + len(SHOWN) * (SHOWN_SEEDS - SEEDS)
    assert len(found) == len(set(found)) == 2 * len(DEPTHS) * often
    assert {case.design for case in found} == set(PRESETS)
    assert {case.n_layers for case in found} == {6, 12, 24, 48}
    assert {case.warmup for case in found} == {1, WARMUP}


def test_the_page_shows_the_table_with_its_errors() -> None:
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len({tuple(one[name] for name in KEY) for one in table}) == len(table)
    assert "\n".join(shown(table)) in OUTPUT.with_suffix(".md").read_text(encoding="utf-8")
    many = [
        one
        | {
            "design": design,
            "n_layers": str(depth),
            "warmup": str(warmup),
            "final_loss": str(2 + 0.1 * seed),
        }
        for design, warmup, depth, seed in cases()
        for one in table[:1]
        if design in SHOWN
    ]
    lines = list(shown(many))
    assert lines[2] == f"| Post-LN |{' 2.35 ± .09 / 2.35 ± .09 |' * len(DEPTHS)}"
    assert (
        " 2.30 ± .08 (7) / 2.35 ± .09 |"
        in list(
            shown(
                [
                    one
                    for one in many
                    if (one["design"], one["n_layers"], one["warmup"], one["final_loss"])
                    != ("post_ln", "6", "1", "2.7")
                ]
            )
        )[2]
    )
