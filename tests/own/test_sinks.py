"""Sinks: what is written can be read again, also after a kill; what is not installed is said in a sentence."""

from __future__ import annotations

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
from explorer.own.readings import scalars


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
    """pyarrow, or where it is not installed pickles in its place: what is tested is when and where files are made."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
        monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda self, path, engine, index: self.to_pickle(path))
        monkeypatch.setattr(pd, "read_parquet", lambda folder: pd.concat(
            [pd.read_pickle(path) for path in sorted(folder.iterdir()) if path.name[0] != "."],  # noqa: S301
            ignore_index=True))


@pytest.mark.usefixtures("parquet")
def test_a_folder_has_every_reading_as_soon_as_it_is_made(tmp_path: Path) -> None:
    model = gpt2()
    watch = ex.watch(model, every=2, sink=tmp_path / "new" / "runs")
    for steps, files in ((1, 1), (1, 1), (3, 3)):
        train(model, steps)
        assert len([path for path in (tmp_path / "new" / "runs").iterdir() if path.suffix == ".parquet"]) == files
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
    assert {path.name for path in tmp_path.iterdir()} == {f"now-{process}-000000000.parquet" for process in (1, 2)}


def test_a_killed_run_keeps_what_it_had(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    code = """
        import os, signal, explorer as ex
        from small_models import gpt2, train
        model = gpt2()
        watch = ex.watch(model, every=1, sink=SINK)
        train(model, 3)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    code = textwrap.dedent(code).replace("SINK", repr(f"{tmp_path}{os.sep}"))
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent)
    assert done.returncode == -signal.SIGKILL
    (tmp_path / ".unfinished.parquet").write_bytes(b"PAR1")  # what a kill amid a write leaves
    assert list(pd.read_parquet(tmp_path)["step"].unique()) == [0, 1, 2]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"sink must be a folder that can be written; got '.*file' \(File exists\)"):
        ex.watch(gpt2(), sink=tmp_path / "file")
    with pytest.raises(ValueError, match=r"sink must be a folder that can be written; got '.*' \(no path has the"):
        ex.watch(gpt2(), sink=tmp_path / "a\0b")


def test_tensorboard_and_wandb_get_a_number_a_layer() -> None:
    model, writer, run = gpt2(), Writer(), Run()
    with ex.watch(model, every=2, sink=[writer, run]) as watch:
        train(model, 3)
    frame = watch.frame()
    q = frame.query("statistic == 'second_moment' and layer == 2 and step == 2")["value"].iloc[0]
    assert writer.written["second_moment/resid_post/02", 2] == q
    heads = frame.query("layer == 1 and step == 0")
    assert writer.written["largest_logit/attn_scores/01", 0] == heads.query("statistic == 'largest_logit'").value.max()
    assert writer.written["attention_entropy/pattern/01", 0] == pytest.approx(
        heads.query("statistic == 'attention_entropy'").value.mean())
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


@pytest.mark.parametrize(("sink", "library"), [
    ("tensorboard", "tensorboard"), ("wandb", "wandb"), ("runs/", "pyarrow"),
])
def test_what_is_not_installed_is_said(sink: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # importing it fails, as if it were not there
    with pytest.raises(ValueError, match=f"needs the package {library}, which is not installed"):
        ex.watch(gpt2(), sink=sink)


def test_wandb_by_name_needs_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb: Any = ModuleType("wandb")
    wandb.run = None
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(ValueError, match=r"needs a run that has begun: call wandb.init\(\) first"):
        ex.watch(gpt2(), sink="wandb")


def test_a_sink_that_fails_does_not_end_the_training() -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    model = gpt2()
    watch = ex.watch(model, every=1, sink=SimpleNamespace(add_scalar=fail, flush=lambda: None))
    with pytest.warns(UserWarning, match="step 0: TensorBoard gets no more readings: no space left on device"):
        train(model, 2)
    assert [reading.step for reading in watch.readings] == [0, 1]
