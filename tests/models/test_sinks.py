"""Sinks: what is written can be read again, also after a kill; what is not installed is said in a
sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from small_models import gpt2, train

import explorer as ex
from explorer_models.readings import scalars, sinks


class Writer:
    """What TensorBoard's SummaryWriter offers, as far as it is used."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, int], float] = {}
        self.flushed, self.closed = 0, False

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        assert (tag, step) not in self.written
        self.written[tag, step] = value

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed = True


class Run:
    """What a run of Weights & Biases offers, as far as it is used."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def log(self, values: dict[str, float], commit: bool) -> None:
        assert not commit, "the run's own step must not move on"
        self.logged.append(values)

    def define_metric(self, *_: object) -> None:
        """Only that it is there."""


@pytest.fixture
def parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow, or where it is not installed pickles in its place: what is tested is when and where
    files are made."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
        monkeypatch.setattr(
            pd.DataFrame, "to_parquet", lambda self, path, engine, index: self.to_pickle(path)
        )
        monkeypatch.setattr(
            pd,
            "read_parquet",
            lambda folder: pd.concat(
                [pd.read_pickle(path) for path in sorted(folder.iterdir()) if path.name[0] != "."],  # noqa: S301
                ignore_index=True,
            ),
        )


@pytest.mark.usefixtures("parquet")
def test_a_folder_has_every_reading_as_soon_as_it_is_made(tmp_path: Path) -> None:
    model = gpt2()
    watch = ex.watch(model, every=2, sink=tmp_path / "new" / "runs")
    for steps, files in ((1, 1), (1, 1), (3, 3)):
        train(model, steps)
        assert (
            len(
                [
                    path
                    for path in (tmp_path / "new" / "runs").iterdir()
                    if path.suffix == ".parquet"
                ]
            )
            == files
        )
    found = pd.read_parquet(tmp_path / "new" / "runs")
    pd.testing.assert_frame_equal(found, watch.frame(), check_dtype=False)


@pytest.mark.usefixtures("parquet")
def test_another_run_adds_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same steps, begun in the same second."""
    monkeypatch.setattr(time, "strftime", lambda *_: "now")
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda number=process: number)
        model = gpt2()
        with ex.watch(model, sink=f"{tmp_path}{os.sep}", every=1):
            train(model, 1)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"now-{process}-000000000.parquet" for process in (1, 2)
    }


READ: dict[str, Any] = {
    ".csv": pd.read_csv,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".ndjson": lambda path: pd.read_json(path, lines=True),
}


@pytest.mark.parametrize(
    ("suffix", "as_text"), [(".csv", False), (".jsonl", True), (".ndjson", False), (".CSV", True)]
)
def test_a_file_is_what_its_suffix_says(tmp_path: Path, suffix: str, as_text: bool) -> None:
    """It has every reading as soon as it is taken, and another run adds to it."""
    path = tmp_path / "new" / f"run{suffix}"
    for run in (1, 2):
        model = gpt2()
        watch = ex.watch(model, every=2, sink=str(path) if as_text else path)
        train(model, 1)
        assert path.is_file()
        train(model, 2)
        found = READ[suffix.lower()](path)
        assert len(found) == run * len(watch.frame())
        last = found.tail(len(watch.frame())).reset_index(drop=True)
        for column in watch.frame():
            expected, written = watch.frame()[column], last[column]
            assert (expected.isna() == written.isna()).all()
            for value, stored in zip(expected.dropna(), written.dropna(), strict=True):
                assert stored == (pytest.approx(value, rel=1e-15) if column == "value" else value)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_numbers_that_are_not_finite_are_written_as_such(tmp_path: Path, suffix: str) -> None:
    values = [1.5, float("nan"), float("inf"), float("-inf")]
    frame = pd.DataFrame(
        {
            "step": 0,
            "layer": pd.array([1, 2, 3, None], dtype="Int64"),
            "site": "W",
            "head": pd.NA,
            "position": pd.NA,
            "statistic": "weight_norm",
            "value": values,
        }
    )
    (made,) = sinks(tmp_path / f"run{suffix}")
    made.write(0, frame)
    text = (tmp_path / f"run{suffix}").read_text(encoding="utf-8").splitlines()
    if suffix == ".csv":
        assert text == [
            "step,layer,site,head,position,statistic,value",
            "0,1,W,,,weight_norm,1.5",
            "0,2,W,,,weight_norm,nan",
            "0,3,W,,,weight_norm,inf",
            "0,,W,,,weight_norm,-inf",
        ]
    else:
        rows = [json.loads(line) for line in text]
        assert [row["value"] for row in rows] == [1.5, "nan", "inf", "-inf"]
        assert [row["layer"] for row in rows] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("name", "kind"), [("x.json", str), ("runs/x.txt", Path), ("x.parquets", str)]
)
def test_another_suffix_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type[str] | type[Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = r"sink must be a file that ends in \.csv or \.jsonl, or a folder for Parquet files, .*"
    with pytest.raises(ValueError, match=f"{rule}; got '{name}'"):
        ex.watch(gpt2(), sink=kind(name))
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    for name, rule in (("x.csv", "the columns step,layer"), ("x.jsonl", "a file of JSON lines")):
        (tmp_path / name).write_text("date,price\n", encoding="utf-8")
        with pytest.raises(ValueError, match=f"sink must be .*{rule}.* begins with .date,price"):
            ex.watch(gpt2(), sink=tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == "date,price\n"
    (tmp_path / "folder.csv").touch()
    with pytest.raises(
        ValueError, match=r"sink must be a file that can be written; got '.*' \(File exists\)"
    ):
        ex.watch(gpt2(), sink=tmp_path / "folder.csv" / "x.csv")


def test_a_killed_run_keeps_what_it_had(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    code = """
        import os, signal, explorer as ex
        from small_models import Encoder, train
        model = Encoder()
        watch = ex.watch(model, every=1, sink=SINK)
        train(model, 3)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    code = textwrap.dedent(code).replace("SINK", repr(f"{tmp_path}{os.sep}"))
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent)
    assert done.returncode == -signal.SIGKILL
    (tmp_path / ".unfinished.parquet").write_bytes(b"PAR1")  # what a kill amid a write leaves
    assert list(pd.read_parquet(tmp_path)["step"].unique()) == [0, 1, 2]


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    (tmp_path / "file").touch()
    with pytest.raises(
        ValueError, match=r"sink must be a folder that can be written; got '.*file' \(File exists\)"
    ):
        ex.watch(gpt2(), sink=tmp_path / "file")
    with pytest.raises(
        ValueError, match=r"sink must be a folder that can be written; got '.*' \(no path has the"
    ):
        ex.watch(gpt2(), sink=tmp_path / "a\0b")


def test_tensorboard_and_wandb_get_a_number_a_layer() -> None:
    model, writer, run = gpt2(), Writer(), Run()
    with ex.watch(model, every=2, sink=[writer, run]) as watch:
        train(model, 3)
    frame = watch.frame()
    q = frame.query("statistic == 'second_moment' and layer == 2 and step == 2")["value"].iloc[0]
    assert writer.written["second_moment/resid_post/02", 2] == q
    heads = frame.query("layer == 1 and step == 0")
    assert (
        writer.written["largest_logit/attn_scores/01", 0]
        == heads.query("statistic == 'largest_logit'").value.max()
    )
    assert writer.written["attention_entropy/pattern/01", 0] == pytest.approx(
        heads.query("statistic == 'attention_entropy'").value.mean()
    )
    assert "parameter_gradient/wte.weight" in scalars(frame.query("step == 0"))
    assert writer.flushed == 2
    assert not writer.closed, "it is the user's"
    assert [values["watch/step"] for values in run.logged] == [0, 2]
    assert run.logged[1]["second_moment/resid_post/02"] == q


def test_a_writer_that_was_made_here_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, made = Writer(), ModuleType("torch.utils.tensorboard")
    made.SummaryWriter = lambda: writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", made)
    model = gpt2()
    with ex.watch(model, sink="tensorboard"):
        train(model, 1)
        assert not writer.closed
    assert writer.closed


@pytest.mark.parametrize(
    ("sink", "library"),
    [
        ("tensorboard", "tensorboard"),
        ("wandb", "wandb"),
        ("runs/", "pyarrow"),
    ],
)
def test_what_is_not_installed_is_said(
    sink: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # importing it fails, as if it were not there
    with pytest.raises(ValueError, match=f"needs the package {library}, which is not installed"):
        ex.watch(gpt2(), sink=sink)


def test_a_sink_that_fails_does_not_end_the_training() -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    model = gpt2()
    watch = ex.watch(model, every=1, sink=SimpleNamespace(add_scalar=fail, flush=lambda: None))
    with pytest.warns(
        UserWarning, match="step 0: TensorBoard gets no more readings: no space left on device"
    ):
        train(model, 2)
    assert [reading.step for reading in watch.readings] == [0, 1]
