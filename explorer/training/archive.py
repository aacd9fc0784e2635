"""A race in one file: its text, settings, numbers, weights and optimizers, so that it can continue.

The file is torch's zip of tensors and plain values, read with `weights_only`, which runs nothing that is in it. It has
the text itself: who hands on the race of a private text hands on the text.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.text import Text
from explorer.training.history import History
from explorer.training.race import Race
from explorer.training.recipe import Recipe
from explorer.training.runner import Contender
from explorer.training.tasks import Task

FORMAT = "explorer race 1"
"""Kind and version of the file."""


def save(race: Race, path: str | Path) -> None:
    """Writes a race that is not running to a file, completely or not at all."""
    target = Path(path)
    part = target.with_name(target.name + ".part")
    torch.save(_packed(race), part)
    part.replace(target)


def to_bytes(race: Race) -> bytes:
    """The bytes that `save` would write."""
    file = io.BytesIO()
    torch.save(_packed(race), file)
    return file.getvalue()


def load(path: str | Path) -> Race:
    """Reads what `save` wrote; `run` goes on with it.

    Raises:
        ConfigError: there is no such file, it is not a race, or a race that this version or machine refuses.
    """
    try:
        with Path(path).open("rb") as file:
            is_zip = zipfile.is_zipfile(file)  # torch also reads an older format, which is not ours
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True) if is_zip else None
    except OSError as error:
        raise ConfigError(f"race must be a file that can be read; got {os.fspath(path)!r} ({error.strerror})") from None
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"race must be a file that save wrote; got {os.fspath(path)!r}, which is not")
    try:
        return _unpacked(content)
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise ConfigError(f"race must be a complete file; got {os.fspath(path)!r}, which is not ({error})") from None


def _unpacked(content: dict[str, Any]) -> Race:
    codes, vocabulary = content["text"].numpy().astype(np.int64), tuple(content["vocabulary"])
    if codes.min() < 0 or codes.max() >= len(vocabulary):
        raise ValueError("its text has characters that are not in its vocabulary")
    contenders = [
        Contender(name, Config.from_json(config), Recipe.from_json(recipe))
        for name, config, recipe in content["contenders"]
    ]
    race = Race(contenders, Task.from_json(content["task"]), content["steps"], content["every"],
                Text(codes, vocabulary))
    for runner, state, history in zip(race.runners, content["runners"], content["histories"], strict=True):
        runner.restore(state)
        runner.history = _history(history)
    return race


def _packed(race: Race) -> dict[str, Any]:
    """A race as tensors and plain values."""
    text = race.data.text
    return {
        "format": FORMAT,
        "task": race.task.to_json(),
        "steps": race.steps,
        "every": race.every,
        "vocabulary": "".join(text.vocabulary),
        "text": torch.from_numpy(text.codes.astype(np.int16)),
        "contenders": [[one.name, one.config.to_json(), one.recipe.to_json()] for one in race.contenders],
        "runners": [runner.state() for runner in race.runners],
        "histories": [_numbers(runner.history) for runner in race.runners],
    }


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
        history.values[statistic, site] = list(values.numpy())
    return history
