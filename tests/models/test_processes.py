"""Two processes that train together read what one reads, however weights and batch are spread over
them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from ranks import WAYS, run
from small_models import llama

import explorer as ex

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes wrote."""
    into = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "ranks.py", into],
            text=True,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    return into


@pytest.fixture(scope="module")
def alone() -> pd.DataFrame:
    """What one process reads."""
    model = llama()
    watch = ex.watch(model, every=2, spectra=True)
    run(model)
    return watch.frame()


KEYS = ["step", "layer", "site", "head", "statistic"]


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_read_what_one_reads(way: str, folder: Path, alone: pd.DataFrame) -> None:
    """Singular values only of matrices that each process holds whole. Cosines of small updates show
    the rounding of the weights, which is not orthogonal to them."""
    if way not in ("data_parallel", "wrapped_first"):
        alone = alone[~alone["statistic"].isin(["update_spectral_norm", "update_stable_rank"])]
    for rank in range(2):
        found = pd.read_csv(folder / f"{way}-{rank}.csv", dtype={"layer": "Int64", "head": "Int64"})
        assert sorted(found["statistic"].unique()) == sorted(alone["statistic"].unique())
        both = alone.merge(found, on=KEYS, how="outer", suffixes=("", "_of_two"))
        assert len(both) == len(alone) == len(found)
        slack = (
            both["statistic"].map({"update_cosine": 3e-5}).fillna(1e-6) + 2e-4 * both["value"].abs()
        )
        assert (abs(both["value_of_two"] - both["value"]) <= slack).all(), way


def test_what_is_not_finite_in_one_process_is_known_to_both(folder: Path) -> None:
    found = {(folder / f"first-{rank}").read_text() for rank in range(2)}
    assert found == {"step 0, forward: the output of layers.1.mlp.act_fn"}
