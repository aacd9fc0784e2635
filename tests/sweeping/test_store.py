"""What a sweep keeps: real kills of real processes, real disks that are full or may not be
written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from small_sweeps import ENVIRONMENT, OVER, REFUSED, SMALL, same

import explorer
from explorer import ConfigError, Recipe, Sweep, Task, sweep
from explorer_race.cells import Training


def run(code: str, folder: Path, **others: Any) -> subprocess.Popen[str]:
    """Another Python, whose warnings are errors; what it says is read from it, what it leaves lies
    beside a folder."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {"TMPDIR": str(folder.parent)},
        **others,
    )


def here(**others: Any) -> xr.Dataset:
    """The small sweep, computed in this process."""
    with ThreadPoolExecutor(1) as pool:
        return sweep(SMALL, **{"over": OVER, "executor": pool, **others})


SWEEPING = """
import os, signal, sys
from small_sweeps import OVER, SMALL
import explorer
seen = []
def after(cell):
    print(cell.origin, flush=True)
    seen.append(cell.origin)
    if seen.count("measured") == 4:
        os.kill(os.getpid(), signal.SIGKILL)
explorer.sweep(SMALL, OVER, store=sys.argv[1], on_cell=after)
"""


def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path: Path, whole: xr.Dataset) -> None:
    """Only what is missing is computed, and the dataset is that of a sweep that nobody killed. Its
    processes end."""
    one = run(SWEEPING, tmp_path / "store", start_new_session=True)
    said, _ = one.communicate()
    assert one.returncode == -signal.SIGKILL
    assert said.split() == ["predicted"] * 12 + ["measured"] * 4

    kept = np.isfinite(zarr.open_group(tmp_path / "store", mode="r")["numbers"][..., -1])
    assert 16 <= kept.sum() < 24, "it was killed in the middle"
    computed: list[Any] = []
    assert same(here(store=tmp_path / "store", on_cell=computed.append), whole)
    assert len(computed) == 24 - kept.sum()
    assert same(here(store=tmp_path / "store", on_cell=computed.append), whole)
    assert len(computed) == 24 - kept.sum(), "nothing was missing"

    end = time.monotonic() + 20
    while (left := members(one.pid)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "the processes that measured have outlived their parent"


def members(session: int) -> list[str]:
    """Processes of a session."""
    lines = subprocess.check_output(["ps", "-eo", "sid=,pid=,stat=,args="], text=True).splitlines()
    return [
        line
        for line in lines
        if line.split()[0] == str(session) and not line.split()[2].startswith("Z")
    ]


MAKING = """
import os, signal, sys, warnings
from small_sweeps import OVER, SMALL
from explorer import Sweep

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: zarr forgets its own in the child
def kill_at(number, folder):
    count = 0
    def hook(event, arguments):
        nonlocal count
        changes = event in ("os.rename", "os.mkdir") or (event == "open" and arguments[1] == "wb")
        if changes and str(arguments[0]).startswith(folder):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

Sweep(SMALL, OVER, store=os.path.join(sys.argv[1], "whole"))  # what is imported meanwhile need not be again
number, killed = 0, True
while killed:
    number += 1
    folder = os.path.join(sys.argv[1], str(number))
    if not (child := os.fork()):
        kill_at(number, folder)
        Sweep(SMALL, OVER, store=folder)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
print(number)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each kill is a fork's")
def test_a_store_whose_making_was_broken_off_is_finished(tmp_path: Path, whole: xr.Dataset) -> None:
    """Whoever makes it is killed at the first change of the disk, at the second, and so on."""
    said, _ = run(MAKING, tmp_path).communicate()
    number = int(said)
    assert number > 20
    here(store=tmp_path / str(number))
    for broken_off in range(1, number):
        one = Sweep(SMALL, OVER, store=tmp_path / str(broken_off))
        assert one.done == 0
        assert labels(tmp_path / str(broken_off)) == labels(tmp_path / str(number))
    assert same(here(store=tmp_path / "1"), whole)
    assert same(here(store=tmp_path / str(number - 1)), whole)


def labels(where: Path) -> list[Any]:
    """What a store says of its cells."""
    return [
        zarr.open_group(where, mode="r")[name][:].tolist()
        for name in ("origin", *OVER, "number", "keys")
    ]


def test_what_failed_is_computed_again_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: xr.Dataset
) -> None:
    monkeypatch.setenv("EXPLORER_DEVICE", "abacus")
    failed = here(store=tmp_path / "store")
    assert (
        failed.failure.sel(origin="measured")
        == "ValueError: EXPLORER_DEVICE must be one of auto, cpu, cuda; got 'abacus'"
    ).all()
    monkeypatch.delenv("EXPLORER_DEVICE")
    assert same(here(store=tmp_path / "store"), failed)

    computed: list[Any] = []
    assert same(here(store=tmp_path / "store", retry_failed=True, on_cell=computed.append), whole)
    assert [cell.origin for cell in computed] == ["measured"] * 12
    assert same(here(store=tmp_path / "store"), whole), "the store still says that they failed"


class Traced(zarr.storage.MemoryStore):
    """A store that keeps what it held after each change."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.states: list[dict[str, Any]] = []
        super().__init__(self.held)

    async def set(self, key: str, value: Any, byte_interval: Any = None) -> None:
        await super().set(key, value, byte_interval)
        self.states.append(dict(self.held))

    async def delete(self, key: str) -> None:
        await super().delete(key)
        self.states.append(dict(self.held))


def test_a_failure_that_is_written_anew_never_stands_beside_older_numbers() -> None:
    """Whoever is killed between two changes leaves a cell that failed as before, one that is not
    there, or the new one."""
    from explorer.sweeping.store import Store

    def opened(where: Any) -> Store:
        return Store(where, one.grid, names, explorer.__version__)

    one, held = Sweep(SMALL, OVER), Traced()
    names, place = [*one.layout.names, "state"], (1, 0, 0)
    old, new = np.arange(float(len(names))), -np.arange(1.0, len(names) + 1)
    opened(held).write(place, old, "the device is on fire")
    for numbers, failure in ((new, ""), (old, "it failed otherwise")):
        before = opened(held)
        states, held.states[:] = [], []
        before.write(place, numbers, failure)
        for state in held.states:
            after = opened(zarr.storage.MemoryStore(dict(state)))
            found = after.failures[place], after.numbers[place].tolist()
            states.append(found)
            if not np.isnan(found[1]).all():
                assert found in (
                    ("the device is on fire", old.tolist()),
                    (failure, numbers.tolist()),
                )
        assert states[-1] == (failure, numbers.tolist())
        opened(held).write(place, old, "the device is on fire")


def test_a_refusal_is_kept_with_its_reason(tmp_path: Path) -> None:
    first = here(over=REFUSED, store=tmp_path / "store")
    assert (
        first.failure.sel(n_heads=3).values.tolist()
        == ["d_model must be divisible by n_heads; got 16 and 3"] * 2
    )
    assert same(here(over=REFUSED, store=tmp_path / "store", on_cell=pytest.fail), first)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"config": SMALL.replace(d_model=32)}, "config.d_model is 16 there and 32 here"),
        (
            {"over": OVER | {"alpha": [0.1, 0.5, 1.0, 3.0]}},
            "over.alpha[3] is 2.0 there and 3.0 here",
        ),
        (
            {"over": OVER | {"alpha": [0.1]}},
            "over.alpha is [0.1, 0.5, 1.0, 2.0] there and [0.1] here",
        ),
        ({"over": {"alpha": OVER["alpha"]}}, "over.n_layers is [1, 2, 3] there and None here"),
        ({"over": {**OVER, "seed": [0, 1]}}, "over.seed is None there and [0, 1] here"),
        (
            {"statistics": ["second_moment", "kurtosis"]},
            "statistics[1] is 'token_correlation' there and 'kurtosis' here",
        ),
        (
            {"statistics": ["second_moment"]},
            "statistics is ['second_moment', 'token_correlation'] there and",
        ),
        (
            {"origins": ["predicted", "trained"]},
            "origins[1] is 'measured' there and 'trained' here; ",
        ),
        ({"settings": Training(steps=7)}, "steps is 200 there and 7 here"),
        (
            {"settings": Training(Recipe(warmup=3))},
            "recipe.warmup is 1 there and 3 here",
        ),
        (
            {"settings": Training(task=Task(kind="masked_character"))},
            "task.kind is 'next_character' there and 'masked_character' here",
        ),
    ],
)
def test_the_store_of_another_sweep_is_refused(
    tmp_path: Path, other: dict[str, Any], difference: str
) -> None:
    first: dict[str, Any] = {
        "config": SMALL,
        "over": OVER,
        "statistics": ["second_moment", "token_correlation"],
        "store": tmp_path / "store",
    }
    if "settings" in other:
        first["origins"] = ["measured", "trained"]
    Sweep(**first)
    with pytest.raises(ConfigError) as refusal:
        Sweep(**first | other)
    assert str(refusal.value).startswith("store must hold this sweep; got ")
    assert difference in str(refusal.value)


def test_the_store_of_another_version_is_refused(tmp_path: Path) -> None:
    from explorer.sweeping.store import Store

    one = Sweep(SMALL, OVER, store=tmp_path / "store")
    names, version = [*one.layout.names, "state"], explorer.__version__
    with pytest.raises(
        ConfigError,
        match=rf"holds another: version is '{re.escape(version)}' there and '9\.9' here$",
    ):
        Store(tmp_path / "store", one.grid, names, "9.9")
    with pytest.raises(
        ConfigError, match=r"its designs or numbers are others, though their settings read alike$"
    ):
        Store(tmp_path / "store", one.grid, [*names, "more"], version)


def test_something_else_is_no_store_and_left_alone(tmp_path: Path) -> None:
    files, file, array, group = (tmp_path / name for name in ("files", "file", "array", "group"))
    files.mkdir()
    (files / "thesis.txt").write_text("years of work")
    file.write_text("another's")
    zarr.create_array(array, shape=(3,), dtype="float64")
    zarr.open_group(group, mode="w").create_array("numbers", shape=(3,), dtype="float64")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for where in (files, file, array, group, group / "numbers", "", "nowhere://else", 3):
        with pytest.raises(ConfigError, match=r"^store must be"):
            Sweep(SMALL, OVER, store=where)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_path_with_a_nul_is_no_store() -> None:
    for where in ("maps/a\0b", Path("a\0b")):
        with pytest.raises(
            ConfigError, match=r"^store must be a place .* \(no path has the character NUL\)$"
        ):
            Sweep(SMALL, OVER, store=where)


def test_whatever_zarr_takes_is_a_store(tmp_path: Path, whole: xr.Dataset) -> None:
    memory, file = zarr.storage.MemoryStore(), tmp_path / "store.zip"
    archive = zarr.storage.ZipStore(file, mode="w")
    for where in (tmp_path / "path", str(tmp_path / "text"), memory, archive):
        assert same(here(store=where), whole)
    archive.close()
    for where in (
        tmp_path / "path",
        str(tmp_path / "text"),
        memory,
        zarr.storage.ZipStore(file, mode="r"),
    ):
        assert same(here(store=where, on_cell=pytest.fail), whole)


def test_xarray_opens_a_store_by_itself(tmp_path: Path, whole: xr.Dataset) -> None:
    here(store=tmp_path / "store")
    with xr.open_zarr(tmp_path / "store", consolidated=False, chunks=None) as found:
        assert found.numbers.dims == ("origin", "alpha", "n_layers", "number")
        read = found.numbers.sel(origin="measured", alpha=0.5, n_layers=3, number="second_moment")
        assert (
            float(read) == whole.second_moment.sel(origin="measured", alpha=0.5, n_layers=3).item()
        )
        assert found.attrs["sweep"]["over"] == OVER


def test_two_sweeps_may_fill_a_store_at_a_time(tmp_path: Path, whole: xr.Dataset) -> None:
    found: list[xr.Dataset] = []
    threads = [
        threading.Thread(target=lambda: found.append(here(store=tmp_path / "store")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [same(one, whole) for one in found] == [True] * 3
    assert same(here(store=tmp_path / "store", on_cell=pytest.fail), whole)
