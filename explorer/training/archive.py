"""A race in one file: its text, settings, numbers, weights and optimizers, so that it can continue.

The file is torch's zip of tensors and plain values, read with `weights_only`, which runs nothing that is in it. It has
the text itself: passing on the race of a private text passes on the text.
"""

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
from explorer.limits import memory_limit
from explorer.training.history import TRAINING, History, Terms
from explorer.training.race import Race, race_of

# What a file of tensors may hold, before anything is made of it: it may come from anybody. torch reads it with
# `weights_only`, which runs nothing. What remains are files that are small and take much: packed entries, views that
# repeat one number, lists within lists. None of them is in a file that torch wrote of a race.


MOST_PARTS, DEEPEST = 5_000_000, 12
"""Values in a file, each counted where it stands, and lists within lists."""
LARGEST_TABLE, TABLE_SHARE = 2_000_000, 1 / 6
"""Bytes of the table of contents, which Python reads step by step at some 2 s a megabyte; of a large file more, as many
small matrices have a long one."""
MAKERS = (b"]", b"}", b"(", b"t", b"l", b"d", b"\x85", b"\x86", b"\x87")
"""Instructions of a table that each make a list, tuple or dict of 50 bytes and more from one byte."""
MOST_MADE = 1 / 6
"""Largest share of a table's bytes that may be such instructions. Tables that torch wrote of races have 9 %."""


def check_zip(file: BinaryIO) -> None:
    """Raises if entries of a zip are packed, or take more in memory than in the file.

    Raises:
        ValueError, zipfile.BadZipFile: it is no zip, or one that torch did not write.
    """
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size
               for entry in entries):
            raise ValueError("an entry is packed")
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its entries overlap")
        tables = [entry for entry in entries if entry.filename.endswith(".pkl")]
        if any(entry.file_size > max(LARGEST_TABLE, TABLE_SHARE * size) for entry in tables):
            raise ValueError("its table of contents is too large")
        for table in map(archive.read, tables):
            if sum(map(table.count, MAKERS)) > MOST_MADE * len(table):
                raise ValueError("its table of contents makes more than a race has")


def check_content(content: object, most_bytes: float) -> None:
    """Raises if what was read is not plain: dicts, lists, texts, numbers, and tensors that hold what they show.

    Args:
        most_bytes: of all tensors together, each counted wherever it stands.
    Raises:
        ValueError: it is not, or it is too much.
    """
    waiting: list[tuple[object, int]] = [(content, 0)]
    parts, left = 0, most_bytes
    while waiting:
        value, depth = waiting.pop()
        parts += 1
        if isinstance(value, torch.Tensor):
            left -= tensor_bytes(value)
        elif isinstance(value, dict):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple):
            waiting += [(part, depth + 1) for part in value]
        elif value is not None and type(value) not in (str, int, float, bool):
            raise ValueError(f"it has a {type(value).__name__}")
        if left < 0 or parts + len(waiting) > MOST_PARTS or depth > DEEPEST:
            raise ValueError("it is too large")


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor.

    Raises:
        ValueError: it is of a kind that a race has not, or shows more numbers than it holds.
    """
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    if not plain or tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_complex():
        raise ValueError("it has a tensor of another kind")
    size = tensor.numel() * tensor.element_size()
    if size > tensor.untyped_storage().nbytes():
        raise ValueError("it has a tensor that repeats its numbers")
    return size


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
    torch.save({
        "format": FORMAT,
        **terms,
        "text": torch.from_numpy(terms["text"]),
        "runners": [runner.state() for runner in race.runners],
        "histories": [_numbers(runner.history) for runner in race.runners],
    }, file)
    return file.getvalue()


def load(path: str | Path) -> Race:
    """Reads what `save` wrote; `run` goes on with it.

    Raises:
        ConfigError: there is no such file, it is not a race, or a race that this version or machine refuses.
    """
    with opening(path, "race must be a file that can be read"):
        file = Path(path).open("rb")  # noqa: SIM115 - closed below
    with file:
        return _read(file, str(path))


def from_bytes(raw: bytes, name: str) -> Race:
    """Reads the bytes of such a file, from any source: see `contents`.

    Args:
        name: of the file in a refusal.
    Raises:
        ConfigError: see `load`.
    """
    return _read(io.BytesIO(raw), name)


def _read(file: BinaryIO, name: str) -> Race:
    try:
        check_zip(file)  # torch also reads an older format, which is not ours
        file.seek(0)
        content = torch.load(file, map_location="cpu", weights_only=True)
        check_content(content, memory_limit())
    except (RuntimeError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError,
            MemoryError, OverflowError, NotImplementedError, struct.error, zipfile.BadZipFile, pickle.UnpicklingError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"race must be a file that save wrote; got {name!r}, which is not")
    try:
        return _unpacked(content)
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError) as error:
        raise ConfigError(f"race must be a complete file; got {name!r}, which is not ({error})") from None


def _unpacked(content: dict[str, Any]) -> Race:
    for part in (content["steps"], content["every"], *(state["step"] for state in content["runners"])):
        if type(part) is not int:
            raise TypeError("its steps are not counted in whole numbers")
    for part in (*(text for contender in content["contenders"] for text in contender),
                 *(state["retired"] for state in content["runners"])):
        if type(part) is not str:
            raise TypeError("its names are no texts")
    terms = Terms.of({**content, "text": content["text"].numpy()})
    if terms.text and (terms.text.codes.min() < 0 or terms.text.codes.max() >= len(terms.text.vocabulary)):
        raise ValueError("its text has characters that are not in its vocabulary")
    race = race_of(terms)
    for runner, state, history in zip(race.runners, content["runners"], content["histories"], strict=True):
        if not 0 <= state["step"] <= race.steps:
            raise ValueError(f"it has made {state['step']} of {race.steps} steps")
        runner.restore(state)
        runner.history = _history(history)
    return race


def _numbers(history: History) -> dict[str, Any]:
    """A history as tensors and plain values."""
    return {
        "losses": torch.tensor(history.losses, dtype=torch.float64),
        "steps": torch.tensor(history.steps, dtype=torch.int64),
        "values": [[*key, torch.from_numpy(np.stack(values))] for key, values in history.values.items()],
    }


def _history(packed: dict[str, Any]) -> History:
    history = History()
    history.losses, history.steps = packed["losses"].tolist(), packed["steps"].tolist()
    for statistic, site, values in packed["values"]:
        if len(values) != len(history.steps) or statistic not in TRAINING:
            raise ValueError(f"its readings of {statistic} are not those of its steps")
        history.values[statistic, site] = list(values.numpy())
    return history
