"""A race in a file: it runs on as if nothing had happened, and what is no race is refused and never
run."""

import copy
import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from contenders import MASKED, PRE, TASK, WILD, assert_same, contender

from explorer import ConfigError, text
from explorer_race.archive import from_bytes, load, save, to_bytes
from explorer_race.race import Race, race
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task


@pytest.mark.parametrize("task", [TASK, MASKED], ids=lambda task: task.kind)
def test_save_load_and_go_on(task: Task, tmp_path: Path) -> None:
    """With a text of one's own, which the file carries; RAdam and AdamW bring all kinds of
    state."""
    own = text.encode(
        "".join(text.prose().vocabulary[code] for code in text.prose().codes[:60_000])
    )
    runs = [
        contender("layer_scale", Recipe(optimizer="radam", learning_rate=1e-3, warmup=3), task),
        contender("rezero", Recipe(alpha_schedule="own_rate", optimizer="adamw"), task, seed=3),
        contender(
            "post_ln", Recipe(optimizer="sgd", learning_rate=1e-2, decay="inverse_sqrt"), task
        ),
        contender(
            "pre_ln",
            Recipe(optimizer="muon", warmup=2, decay="wsd", weight_decay=0.1, qk_clip=2),
            task,
        ),
        contender(
            "skipinit", Recipe(optimizer="muon_rms", alpha_schedule="prores", alpha_steps=2), task
        ),
        contender(
            "admin",
            Recipe(qk_clip=2),
            task,
            residual="admin_profiled",
            readout="tied_scaled",
            bias_variance=1 / 3,
            biases="all",
        ),
    ]
    asked = iter(range(1000))
    stopped = race(runs, task, 6, lambda: next(asked) >= 17, every=2, text=own)
    save(stopped, tmp_path / "a.race")
    assert [file.name for file in tmp_path.iterdir()] == ["a.race"]
    again = load(tmp_path / "a.race")
    assert again.contenders == stopped.contenders
    assert again.levels == stopped.levels
    copies = [
        pickle.loads(pickle.dumps(stopped)),  # noqa: S301
        copy.deepcopy(stopped),
        copy.copy(stopped),
        again,
    ]
    whole = race(runs, task, 6, every=2, text=own)
    for one in copies:
        assert_same(one, stopped)
    for one in copies:
        assert_same(one.run(), whole)
    assert_same(stopped.run(), whole)
    pd.testing.assert_frame_equal(
        pd.DataFrame(again.verdict()), pd.DataFrame(whole.verdict()), check_exact=True
    )


def test_retired_stays_retired_in_a_file(tmp_path: Path) -> None:
    run = race([WILD], TASK, 20, every=5)
    save(run, tmp_path / "a.race")
    again = load(tmp_path / "a.race")
    assert again.finished
    assert again.run().verdict()[0].reason == run.verdict()[0].reason
    assert len(again.histories["plain_stack"].losses) == len(run.histories["plain_stack"].losses)


@pytest.mark.parametrize("path", ["no/such/folder/a.race", "a\0b.race", "a\ud800.race", "."])
def test_a_path_that_cannot_be_opened_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^file must be one that can be written; got '.*' \(.+\)$"
    ):
        save(Race([PRE], TASK, 2), path)
    with pytest.raises(
        ConfigError, match=r"^race must be a file that can be read; got '.*' \(.+\)$"
    ):
        load(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_from_before_a_contender_could_have_two_optimizers(tmp_path: Path) -> None:
    asked = iter(range(1000))
    save(race([PRE], TASK, 4, lambda: next(asked) >= 2), tmp_path / "a.race")
    content = torch.load(tmp_path / "a.race", weights_only=True)
    (content["runners"][0]["optimizer"],) = content["runners"][0].pop("optimizers")
    recipe = json.loads(content["contenders"][0][2])
    content["contenders"][0][2] = json.dumps(
        {name: recipe[name] for name in ("optimizer", "learning_rate")}
    )
    torch.save(content, tmp_path / "a.race")
    assert_same(load(tmp_path / "a.race").run(), race([PRE], TASK, 4))


def malicious(path: Path) -> None:
    class Touch:
        def __reduce__(self) -> object:
            return (Path.touch, (path.with_name("touched"),))

    torch.save({"format": "explorer race 1", "task": Touch()}, path)


def foreign(path: Path) -> None:
    torch.save({"weights": torch.zeros(2)}, path)


def cut(path: Path) -> None:
    save(Race([PRE], TASK, 2), path)
    path.write_bytes(path.read_bytes()[:-500])


def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A saved race whose content was changed."""

    def write(path: Path) -> None:
        save(Race([PRE], TASK, 2), path)
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path)

    return write


def without_depth(content: dict[str, Any]) -> None:
    name, config, recipe = content["contenders"][0]
    content["contenders"][0] = [name, config.replace('"n_layers":2', '"n_layers":0'), recipe]


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (malicious, "race must be a file that save wrote"),
        (foreign, "race must be a file that save wrote"),
        (cut, "race must be a file that save wrote"),
        (lambda path: path.write_text("no zip at all"), "race must be a file that save wrote"),
        (
            lambda path: path.write_bytes(pickle.dumps({"format": 1})),
            "race must be a file that save wrote",
        ),
        (lambda path: zipfile.ZipFile(path, "w").close(), "race must be a file that save wrote"),
        (lambda path: None, "race must be a file that can be read"),
        (
            altered(lambda content: content["runners"][0]["model"].pop("E")),
            "race must be a complete file",
        ),
        (
            altered(lambda content: content["text"].add_(1)),
            r"race must be a complete file; got .* vocabulary",
        ),
        (altered(without_depth), "n_layers must be a whole number between 1 and 1024; got 0"),
    ],
)
def test_files_that_are_refused(write, sentence: str, tmp_path: Path) -> None:
    """In one sentence, and nothing in them is run."""
    write(tmp_path / "a.race")
    with pytest.raises(ConfigError, match=sentence):
        load(tmp_path / "a.race")
    assert not (tmp_path / "touched").exists()


@pytest.fixture(scope="module")
def raw() -> bytes:
    return to_bytes(Race([PRE], TASK, 2).run())


@pytest.mark.parametrize(
    "parts",
    [
        {"contenders": []},
        {"contenders": [[["a"], "{}", "{}"]]},
        {"runners": []},
        {"runners": [{}]},
        {"task": "[]"},
        {"task": 3},
        {"vocabulary": "a"},
        {"vocabulary": None},
        {"text": [1, 2]},
        {
            "histories": [
                {
                    "losses": torch.zeros(3),
                    "steps": torch.zeros(3, dtype=torch.int64),
                    "values": [["held_out_loss", "", torch.zeros(2)]],
                }
            ]
        },
    ],
    ids=str,
)
def test_a_file_without_one_of_its_parts_is_refused(raw: bytes, parts: dict[str, object]) -> None:
    content = torch.load(io.BytesIO(raw), weights_only=True) | parts
    torch.save(content, changed := io.BytesIO())
    with pytest.raises(ConfigError):
        from_bytes(changed.getvalue(), "a.race")


def test_a_damaged_file_is_refused_in_a_sentence(raw: bytes) -> None:
    """Cut, overwritten anywhere, or of other bytes; damage that touches only a number is not
    noticed."""
    draw = np.random.default_rng(0)
    for number in range(150):
        if number % 3 == 0:
            bad = raw[: int(draw.integers(len(raw)))]
        elif number % 3 == 1:
            overwritten = bytearray(raw)
            start = int(draw.integers(len(raw))) if number % 2 else int(draw.integers(4000))
            overwritten[start : start + 30] = draw.bytes(30)
            bad = bytes(overwritten)
        else:
            bad = draw.bytes(2000)
        try:
            from_bytes(bad, "a.race")
        except ConfigError:
            continue
        assert number % 3 == 1, "only a changed number can be read"


FULL = """
import resource, signal, sys
from explorer import ConfigError
from explorer_race.archive import load, save
race = load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save(race, sys.argv[2])
except ConfigError as error:
    print(error)
"""
"""As on a disk with room for 20 kB."""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_full_disk_is_said_and_keeps_the_file_that_was_there(tmp_path: Path) -> None:
    save(Race([PRE], TASK, 2).run(), tmp_path / "a.race")
    (tmp_path / "b.race").write_text("before")
    said = subprocess.run(
        [sys.executable, "-c", FULL, "a.race", "b.race"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "file must be one that can be written; got 'b.race' (File too large)\n"
    assert (tmp_path / "b.race").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.race", "b.race"]
