"""Where readings go besides memory: a folder of Parquet files, TensorBoard, Weights & Biases."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from explorer.display import reason, shown

KINDS = """memory, tensorboard, wandb, a folder for Parquet files (a Path, or text with a / or ending in ".parquet"), \
a SummaryWriter, or a W&B run"""


class Sink(Protocol):
    """A destination of readings: each is written as it is taken."""

    def write(self, step: int, frame: pd.DataFrame) -> None:
        """Takes one reading, as `Watch.frame` shows it."""

    def close(self) -> None:
        """Ends it."""


class Parquet:
    """A folder with one file a reading: `pandas.read_parquet(folder)` reads all of it.

    A Parquet file is complete only with its footer, so nothing is appended to one. Each is written beside its place and
    then moved there: a run that is killed keeps every reading it had. Another run adds its own files.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        needs("pyarrow", "a folder of Parquet files")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".writable").touch()
            (folder / ".writable").unlink()
        except (OSError, ValueError) as error:
            raise ValueError(f"sink must be a folder that can be written; got {str(folder)!r} ({reason(folder, error)})"
                             ) from error
        self.folder, self.run = folder, time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"-{os.getpid()}"

    def write(self, step: int, frame: pd.DataFrame) -> None:
        """Adds a file."""
        name = f"{self.run}-{step:09d}.parquet"
        unfinished = self.folder / f".{name}"  # readers of a folder leave out names that begin with a dot
        frame.to_parquet(unfinished, engine="pyarrow", index=False)
        unfinished.replace(self.folder / name)

    def close(self) -> None:
        """Nothing is open."""


class TensorBoard:
    """Scalars of a SummaryWriter, by statistic and site; see `scalars`.

    Args:
        writer: the one to write to.
        own: whether closing this closes it.
    """

    def __init__(self, writer: Any, own: bool) -> None:
        self.writer, self.own = writer, own

    def write(self, step: int, frame: pd.DataFrame) -> None:
        """Adds the scalars of a reading, and flushes."""
        for tag, value in scalars(frame).items():
            self.writer.add_scalar(tag, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Closes the writer if it is this one's."""
        if self.own:
            self.writer.close()


class WandB:
    """Numbers of a W&B run, which go with what the run logs next; see `scalars`.

    Args:
        run: the run.
    """

    def __init__(self, run: Any) -> None:
        self.run = run

    def write(self, step: int, frame: pd.DataFrame) -> None:
        """Adds the scalars of a reading to the run's step, and leaves it to the run to end that step."""
        self.run.log({**scalars(frame), "watch/step": step}, commit=False)

    def close(self) -> None:
        """The run is another's to end."""


def sinks(given: object) -> list[Sink]:
    """The sinks that were asked for: one, or several.

    Raises:
        ValueError: what was given is none, or needs what is not installed.
    """
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return [made for entry in several if (made := _sink(entry)) is not None]


def _sink(given: object) -> Sink | None:
    """One sink; memory, which there is in any case, is None."""
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]()
    if isinstance(given, Path) or (isinstance(given, str) and (os.sep in given or given.endswith(".parquet"))):
        return Parquet(Path(given))
    if callable(getattr(given, "add_scalar", None)):
        return TensorBoard(given, own=False)
    if callable(getattr(given, "log", None)) and callable(getattr(given, "define_metric", None)):
        return WandB(given)
    raise ValueError(f"sink must be {KINDS}; got {shown(given)}")


def _tensorboard() -> Sink:
    needs("tensorboard", "TensorBoard")
    return TensorBoard(import_module("torch.utils.tensorboard").SummaryWriter(), own=True)


def _wandb() -> Sink:
    run = needs("wandb", "Weights & Biases").run
    if run is None:
        raise ValueError("sink wandb needs a run that has begun: call wandb.init() first, or give the run itself")
    return WandB(run)


NAMED: dict[str, Callable[[], Sink | None]] = {"memory": lambda: None, "tensorboard": _tensorboard, "wandb": _wandb}
"""Sinks that are asked for by name."""


def needs(library: str, kind: str) -> Any:
    """A library that a sink needs.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise ValueError(f"sink {kind} needs the package {library}, which is not installed") from error


def scalars(frame: pd.DataFrame) -> dict[str, float]:
    """A number each statistic, site and layer, as second_moment/resid_post/03: of heads the mean or the largest."""
    frame = frame.assign(place=frame["layer"].map(lambda layer: f"/{layer:02d}", na_action="ignore").fillna(""))
    frame["tag"] = frame["statistic"] + "/" + frame["site"] + frame["place"]
    grouped = frame.groupby("tag", sort=False)["value"]
    largest = grouped.first().index.str.startswith("largest_logit/")
    return {str(tag): float(value) for tag, value in grouped.mean().where(~largest, grouped.max()).items()}
