"""A reading: what one step's pass, gradients and update came to, and tables and profiles of
readings."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.display import reason, shown
from explorer.profile import Profile, tidy
from explorer.sites import ROWS
from explorer.translation import speaking
from explorer.vocabulary import VOCABULARY, Array, Key
from explorer_models.texts import TEXTS

if TYPE_CHECKING:
    import pandas as pd

Present = NDArray[np.bool_]
COLUMNS = ["step", "layer", "site", "head", "position", "statistic", "value"]
with speaking("en"):  # a file of numbers says the same in every language
    UNITS: Mapping[str, str] = MappingProxyType(
        {
            **TEXTS["definitions"],
            **{
                name: row.definition
                for name, row in VOCABULARY.items()
                if row.by_position and name != "token_correlation_by_position"
            },
        }
    )
"""Statistics of a reading and their definitions."""


class Reading(NamedTuple):
    """The statistics of one training step."""

    step: int
    """Updates made before it: 0 is the model as it was drawn."""
    values: Mapping[Key, Array]
    """`(statistic, site)` to `[layer]` or `[layer, head]`; `[]` of a matrix that is in no block.
    Site `embed` has the single layer 0."""
    present: Mapping[Key, Present]
    """Where each statistic was read, of the values' shape: elsewhere nan stands in its place."""
    dtype: str
    """Data type of the stream."""
    notes: Mapping[str, str]
    """Statistic to why it is absent, or unlike what one expects; as a profile has them."""
    logits: Mapping[str, float] = MappingProxyType({})
    """`LOGITS` of the step's first pass, in this process, where the loss is a cross-entropy; else
    empty."""

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns step, layer, site, head, position, statistic, value."""
        columns = _columns(tuple((key, value.shape) for key, value in self.values.items()))
        values, present = (
            np.concatenate([np.empty(0, kind), *(arrays[key].ravel() for key in self.values)])
            for arrays, kind in ((self.values, float), (self.present, bool))
        )
        return columns.assign(step=self.step, value=values)[present].reset_index(drop=True)[COLUMNS]

    def profile(self, model: str, layers: tuple[str, ...]) -> Profile:
        """The statistics that profiles have, too: those of every layer, and attention's of the
        layers that have it."""
        values: dict[Key, Array] = {}
        absent: dict[Key, tuple[int, ...]] = {}
        for key, value in self.values.items():
            if key[0] not in VOCABULARY or not value.ndim:
                continue
            by_layer = self.present[key].reshape(len(value), -1)
            without = np.flatnonzero(~by_layer.any(axis=1)) + 1
            whole = bool(by_layer[by_layer.any(axis=1)].all())  # no layer lacks some of its heads
            if whole and len(without) < len(value) and (key[1] in ROWS or not len(without)):
                values[key] = value[None]
                absent |= {key: tuple(without.tolist())} if len(without) else {}
        return Profile(
            "measured",
            values,
            model=model,
            layers=layers,
            dtype=self.dtype,
            step=self.step,
            notes=self.notes,
            absent=absent,
            logits=self.logits,
        )


def frames(readings: Iterable[Reading]) -> pd.DataFrame:
    """The tables of all readings in one."""
    import pandas as pd

    parts = [reading.frame() for reading in readings]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def gather(
    cells: Mapping[Key, Mapping[int | None, Array]], n_layers: int
) -> tuple[dict[Key, Array], dict[Key, Present]]:
    """Arrays over layers, `[layer, …]`, from numbers by layer; and where in them a number was
    read."""
    values: dict[Key, Array] = {}
    present: dict[Key, Present] = {}
    for key, by_layer in cells.items():
        if None in by_layer:
            values[key], present[key] = by_layer[None], np.ones((), bool)
            continue
        length = 1 if key[1] == "embed" else n_layers
        shape = tuple(np.max([value.shape for value in by_layer.values()], axis=0))
        values[key], present[key] = (
            np.full((length, *shape), np.nan),
            np.zeros((length, *shape), bool),
        )
        for layer, value in by_layer.items():
            place = (layer, *map(slice, value.shape))
            values[key][place], present[key][place] = value, True
    return values, present


@lru_cache(maxsize=16)
def _columns(shapes: tuple[tuple[Key, tuple[int, ...]], ...]) -> pd.DataFrame:
    """The columns of a reading's table without step and value: readings have them in common."""
    import pandas as pd

    parts = [tidy(key, np.zeros((1, *shape))) for key, shape in shapes]
    frame = pd.concat(parts, ignore_index=True) if parts else tidy(("", ""), np.zeros(0))
    return frame.drop(columns=["row", "value"])


KINDS = """memory, tensorboard, wandb, a file that ends in .csv or .jsonl, a folder for Parquet files (a Path, or text \
with a / or ending in ".parquet"), a SummaryWriter, or a W&B run"""


class Sink(NamedTuple):
    """A destination of readings: each is written as it is taken."""

    name: str
    write: Callable[[int, pd.DataFrame], object]
    """Takes the step of a reading, and the reading as `Watch.frame` shows it."""
    close: Callable[[], object] = lambda: None


def parquet(folder: Path) -> Sink:
    """A folder with one file a reading: `pandas.read_parquet(folder)` reads all of it.

    A Parquet file is complete only with its footer, so nothing is appended to one. Each is written
    beside its place and then moved there: a run that is killed keeps every reading it had. Another
    run adds its own files.

    Args:
        folder: made if it is not there.
    """
    needs("pyarrow", "a folder of Parquet files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"sink must be a folder that can be written; got {str(folder)!r} ({reason(folder, error)})"
        ) from error
    run = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"-{os.getpid()}"

    def write(step: int, frame: pd.DataFrame) -> None:
        name = f"{run}-{step:09d}.parquet"
        # readers of a folder leave out names that begin with a dot
        unfinished = folder / f".{name}"
        frame.to_parquet(unfinished, engine="pyarrow", index=False)
        unfinished.replace(folder / name)

    return Sink("Parquet", write)


def csv(path: Path) -> Sink:
    """A CSV file: `pandas.read_csv(path)` reads all of it. Numbers that are not finite are nan, inf
    and -inf in it.

    Args:
        path: made with its folders if it is not there; a file with the same columns is added to.
    """
    header = ",".join(COLUMNS)
    existing = _appendable(path)
    if existing and existing != header:
        raise ValueError(
            f"sink must be a CSV file with the columns {header}; {str(path)!r} begins with "
            f"{shown(existing)}"
        )

    def write(_: int, frame: pd.DataFrame) -> None:
        new = not path.exists() or path.stat().st_size == 0
        # pandas leaves nan empty, as it does a head that is not there
        numbers = frame["value"].map(repr)
        _append(
            path, frame.assign(value=numbers).to_csv(index=False, header=new, lineterminator="\n")
        )

    return Sink("CSV", write)


def json_lines(path: Path) -> Sink:
    """A file of JSON lines, one number a line: `pandas.read_json(path, lines=True)` reads all of
    it.

    JSON has no numbers that are not finite: they are the texts nan, inf and -inf, as in
    `Profile.to_json`.

    Args:
        path: made with its folders if it is not there; JSON lines that it has are kept.
    """
    existing = _appendable(path)
    if existing and not existing.startswith("{"):
        raise ValueError(
            f"sink must be a file of JSON lines; {str(path)!r} begins with {shown(existing)}"
        )

    def write(_: int, frame: pd.DataFrame) -> None:
        rows = frame.astype(object).where(frame.notna(), None)
        texts = [value if math.isfinite(value) else str(value) for value in frame["value"].tolist()]
        rows = rows.assign(value=texts)
        _append(
            path,
            "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows.to_dict("records")),
        )

    return Sink("JSON lines", write)


def _appendable(path: Path) -> str:
    """The first line of a file to which readings can be added; empty of a new file.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            return file.readline().rstrip("\n")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"sink must be a file that can be written; got {str(path)!r} ({reason(path, error)})"
        ) from error


def _append(path: Path, lines: str) -> None:
    """Adds whole lines by one write, so that a run that is killed keeps every reading it had."""
    with path.open("a", encoding="utf-8") as file:
        file.write(lines)


FILES: Mapping[str, Callable[[Path], Sink]] = {
    ".csv": csv,
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".parquet": parquet,
}
"""Sinks by the suffix of a path."""


def at_path(given: str | Path) -> Sink:
    """The sink at a path: a file by its suffix, or a folder for Parquet files.

    Raises:
        ValueError: the suffix is of another kind of file.
    """
    path = Path(given)
    # "v1.2" has none
    folder = str(given).endswith(("/", os.sep)) or path.is_dir() or not path.suffix[1:2].isalpha()
    if folder:
        return parquet(path)
    make = FILES.get(path.suffix.lower())
    if make is None:
        raise ValueError(
            f"sink must be a file that ends in .csv or .jsonl, or a folder for Parquet files, which has "
            f"no suffix, .parquet or a / at its end; got {shown(str(given))}"
        )
    return make(path)


def tensorboard(writer: Any, close: Callable[[], object] = lambda: None) -> Sink:
    """A sink that writes the `scalars` of each reading to a SummaryWriter, and flushes them."""

    def write(step: int, frame: pd.DataFrame) -> None:
        for tag, value in scalars(frame).items():
            writer.add_scalar(tag, value, step)
        writer.flush()

    return Sink("TensorBoard", write, close)


def wandb(run: Any) -> Sink:
    """A sink that logs the `scalars` of each reading to a W&B run. They go with what the run
    logs next, which ends W&B's own step."""
    return Sink(
        "WandB", lambda step, frame: run.log({**scalars(frame), "watch/step": step}, commit=False)
    )


def sinks(given: object) -> list[Sink]:
    """The sinks that were asked for: one, or several.

    Raises:
        ValueError: what was given is none, or needs what is not installed.
    """
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return [made for entry in several if (made := _sink(entry)) is not None]


def _sink(given: object) -> Sink | None:
    """One sink; None for memory, where readings are in any case."""
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]()
    if isinstance(given, Path) or (
        isinstance(given, str) and (os.sep in given or "/" in given or Path(given).suffix)
    ):
        return at_path(given)
    if callable(getattr(given, "add_scalar", None)):
        return tensorboard(given)
    if callable(getattr(given, "log", None)) and callable(getattr(given, "define_metric", None)):
        return wandb(given)
    raise ValueError(f"sink must be {KINDS}; got {shown(given)}")


def _tensorboard() -> Sink:
    """The sink "tensorboard": a new SummaryWriter, which the watch closes."""
    needs("tensorboard", "TensorBoard")
    writer = import_module("torch.utils.tensorboard").SummaryWriter()
    return tensorboard(writer, writer.close)


def _wandb() -> Sink:
    """The sink "wandb": the run that wandb.init() has begun."""
    run = needs("wandb", "Weights & Biases").run
    if run is None:
        raise ValueError(
            "sink wandb needs a run that has begun: call wandb.init() first, or give the run itself"
        )
    return wandb(run)


NAMED: dict[str, Callable[[], Sink | None]] = {
    "memory": lambda: None,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
"""Sinks that are asked for by name."""


def needs(library: str, kind: str) -> Any:
    """Imports a library that a sink needs.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise ValueError(
            f"sink {kind} needs the package {library}, which is not installed"
        ) from error


def scalars(frame: pd.DataFrame) -> dict[str, float]:
    """A number for each statistic, site and layer, such as second_moment/resid_post/03: the mean
    over the heads, of largest logits the largest."""
    frame = frame[frame["position"].isna()]
    frame = frame.assign(
        place=frame["layer"].map(lambda layer: f"/{layer:02d}", na_action="ignore").fillna("")
    )
    frame["tag"] = frame["statistic"] + "/" + frame["site"] + frame["place"]
    grouped = frame.groupby("tag", sort=False)["value"]
    largest = grouped.first().index.str.startswith("largest_logit/")
    return {
        str(tag): float(value)
        for tag, value in grouped.mean().where(~largest, grouped.max()).items()
    }
