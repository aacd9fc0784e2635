"""Formulas that are written plainly come out with tags, and names that are none stay as they
are."""

from __future__ import annotations

import pytest

from explorer.figures.words import typeset


@pytest.mark.parametrize(
    ("plain", "typed"),
    [
        ("W_Q and W_out", "W<sub>Q</sub> and W<sub>out</sub>"),
        (
            "A_l = q_l·k_l + A_(l−1)",
            "A<sub>l</sub> = q<sub>l</sub>·k<sub>l</sub> + A<sub>l−1</sub>",
        ),
        ("keeps 2^(−l/2) of it", "keeps 2<sup>−l/2</sup> of it"),
        ("(2N)^¼ x, × (8N)^−¼", "(2N)<sup>1/4</sup> x, × (8N)<sup>−1/4</sup>"),
        ("grows as 2^N, √d_head", "grows as 2<sup>N</sup>, √d<sub>head</sub>"),
        ("2 / (fan_in + fan_out)", "2 / (fan<sub>in</sub> + fan<sub>out</sub>)"),
        ("γ / γ_N", "γ / γ<sub>N</sub>"),
        ("σ²_A, fan_in σ²_b", "σ²<sub>A</sub>, fan<sub>in</sub> σ²<sub>b</sub>"),
        ("my_run_2, n = 3, _x_, a_", "my_run_2, n = 3, _x_, a_"),
    ],
)
def test_formulas_are_typeset(plain: str, typed: str) -> None:
    assert typeset(plain) == typed
    assert typeset(typed) == typed
