"""A race in one file: its text, settings, numbers, weights and optimizers, so that it can continue.

The file is torch's zip of tensors and plain values, read with `weights_only`, which runs nothing
that is in it. It has the text itself: passing on the race of a private text passes on the text."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from explorer.choices import ConfigError, opening
from explorer_race.history import TRAINING, History, Terms
from explorer_race.race import Race, race_of

FORMAT = "explorer race 1"
"""Kind and version of the file."""


def save(race: Race, path: str | Path) -> None:
    """Writes a race that is not running to a file, completely or not at all.

    Raises:
        ConfigError: the file cannot be written, or the disk is full.
    """
    target, raw = Path(path), to_bytes(race)
    with opening(path, "file must be one that can be written"):
        part = target.with_name(target.name + ".part")
        try:
            part.write_bytes(raw)
            part.replace(target)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def to_bytes(race: Race) -> bytes:
    """The bytes that `save` would write."""
    file, terms = io.BytesIO(), race.terms.plain()
    torch.save(
        {
            "format": FORMAT,
            **terms,
            "text": torch.from_numpy(terms["text"]),
            "runners": [runner.state() for runner in race.runners],
            "histories": [_numbers(runner.history) for runner in race.runners],
        },
        file,
    )
    return file.getvalue()


def load(path: str | Path) -> Race:
    """Reads what `save` wrote; `run` goes on with it.

    Raises:
        ConfigError: there is no such file, it is not a race, or a race that this version or machine
            refuses.
    """
    with opening(path, "race must be a file that can be read"):
        file = Path(path).open("rb")  # noqa: SIM115 - closed below
    with file:
        return _read(file, str(path))


def from_bytes(raw: bytes, name: str) -> Race:
    """Reads the bytes that `save` would write.

    Args:
        name: of the file in a refusal.
    Raises:
        ConfigError: see `load`.
    """
    return _read(io.BytesIO(raw), name)


def _read(file: BinaryIO, name: str) -> Race:
    try:
        if not zipfile.is_zipfile(file):  # torch also reads an older format, which is not ours
            raise ValueError("no zip")
        file.seek(0)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (
        RuntimeError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        AssertionError,
        MemoryError,
        OverflowError,
        struct.error,
        pickle.UnpicklingError,
    ):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"race must be a file that save wrote; got {name!r}, which is not")
    try:
        return _unpacked(content)
    except ConfigError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
        IndexError,
        OverflowError,
    ) as error:
        raise ConfigError(
            f"race must be a complete file; got {name!r}, which is not ({error})"
        ) from None


def _unpacked(content: dict[str, Any]) -> Race:
    terms = Terms.of({**content, "text": content["text"].numpy()})
    if terms.text and (
        terms.text.codes.min() < 0 or terms.text.codes.max() >= len(terms.text.vocabulary)
    ):
        raise ValueError("its text has characters that are not in its vocabulary")
    race = race_of(terms)
    for runner, state, history in zip(
        race.runners, content["runners"], content["histories"], strict=True
    ):
        runner.restore(state)
        runner.history = _history(history)
    return race


def _numbers(history: History) -> dict[str, Any]:
    """A history as tensors and plain values."""
    return {
        "losses": torch.tensor(history.losses, dtype=torch.float64),
        "steps": torch.tensor(history.steps, dtype=torch.int64),
        "values": [
            [*key, torch.from_numpy(np.stack(values))] for key, values in history.values.items()
        ],
    }


def _history(packed: dict[str, Any]) -> History:
    history = History()
    history.losses, history.steps = packed["losses"].tolist(), packed["steps"].tolist()
    for statistic, site, values in packed["values"]:
        if len(values) != len(history.steps) or statistic not in TRAINING:
            raise ValueError(f"its readings of {statistic} are not those of its steps")
        history.values[statistic, site] = list(values.numpy())
    return history
