"""A race's file from anybody: what is small and would take much is refused before it does."""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from contenders import PRE, TASK

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.training import archive
from explorer.training.archive import check_content, from_bytes, to_bytes
from explorer.training.race import Contender, Race
from explorer.training.recipe import Recipe

SENTENCE = "race must be a (file that save wrote|complete file); got 'a.zip', which is not"


@pytest.fixture(scope="module")
def raw() -> bytes:
    return to_bytes(Race([PRE], TASK, 2).run())


def changed(raw: bytes, **parts: object) -> bytes:
    content = torch.load(io.BytesIO(raw), weights_only=True) | parts
    torch.save(content, file := io.BytesIO())
    return file.getvalue()


def packed(raw: bytes, method: int) -> bytes:
    """The same entries, packed as a zip bomb has them."""
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(file := io.BytesIO(), "w", method) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return file.getvalue()


def laughs() -> list[object]:
    """Ten times ten times … the same list."""
    value: list[object] = [1.0]
    for _ in range(10):
        value = [value] * 10
    return value


def within() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def test_what_was_written_is_read(raw: bytes) -> None:
    assert from_bytes(raw, "a.zip").finished
    assert from_bytes(packed(raw, zipfile.ZIP_STORED), "a.zip").finished


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_packed_file_is_not_unpacked(raw: bytes, method: int) -> None:
    with pytest.raises(ConfigError, match="race must be a file that save wrote"):
        from_bytes(packed(raw, method), "a.zip")


def test_entries_that_overlap_are_counted(raw: bytes) -> None:
    """The table at a zip's end may name the same bytes a thousand times."""
    with zipfile.ZipFile(io.BytesIO(raw)) as whole:
        largest = max(whole.infolist(), key=lambda entry: entry.file_size)
    file = io.BytesIO(raw)
    with zipfile.ZipFile(file, "a") as archive:
        for number in range(200):
            twin = zipfile.ZipInfo(f"{largest.filename}{number}")
            twin.header_offset, twin.CRC = largest.header_offset, largest.CRC
            twin.file_size = twin.compress_size = largest.file_size
            archive.filelist.append(twin)
        archive._didModify = True
    with pytest.raises(ConfigError, match="race must be a file that save wrote"):
        from_bytes(file.getvalue(), "a.zip")


@pytest.mark.parametrize("value", [
    torch.zeros(1).expand(10**12), torch.zeros(4, device="meta"), torch.eye(2).to_sparse(), laughs(), within(), {1, 2},
    OrderedDict(a=[torch.zeros(8)] * 1000), 1j, bytearray(8),
], ids=["expanded", "meta", "sparse", "laughs", "within itself", "set", "again and again", "complex", "bytes"])
def test_what_takes_more_than_it_has(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_PARTS", 20_000)
    with pytest.raises(ValueError, match=r"it (has a|is too large)"):
        check_content({"text": value}, 10_000)


def test_plain_content_passes() -> None:
    shared = torch.zeros(8)
    check_content({"a": [shared, shared.view(2, 4), None, 1, "b", (True, 2.0)]}, 64)
    with pytest.raises(ValueError, match="too large"):
        check_content([shared, shared], 63)


@pytest.mark.parametrize("parts", [
    {"text": torch.zeros(1, dtype=torch.int16).expand(10**11)}, {"steps": 2.5}, {"steps": 10**30}, {"steps": "2"},
    {"every": True}, {"contenders": [[["a"], "{}", "{}"]]}, {"contenders": []}, {"runners": []}, {"runners": [{}]},
    {"histories": [{"losses": torch.zeros(3), "steps": torch.zeros(3, dtype=torch.int64),
                    "values": [["held_out_loss", "", torch.zeros(2)]]}]},
    {"vocabulary": "a"}, {"task": "[]"}, {"task": 3}, {"vocabulary": None}, {"text": [1, 2]},
], ids=str)
def test_parts_that_are_none_of_a_race(raw: bytes, parts: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        from_bytes(changed(raw, **parts), "a.zip")


def test_a_runner_cannot_be_beyond_the_race(raw: bytes) -> None:
    content = torch.load(io.BytesIO(raw), weights_only=True)
    for step in (-1, 3, 1.0):
        state = content["runners"][0] | {"step": step}
        with pytest.raises(ConfigError, match=SENTENCE):
            from_bytes(changed(raw, runners=[state]), "a.zip")


def test_bytes_of_any_kind_are_refused_in_a_sentence(raw: bytes) -> None:
    """Cut, changed anywhere, and drawn at random; a change that touches only a number may pass."""
    draw = np.random.default_rng(0)
    for number in range(150):
        if number % 3 == 0:
            bad = raw[: int(draw.integers(len(raw)))]
        elif number % 3 == 1:
            bad = bytearray(raw)
            start = int(draw.integers(len(raw))) if number % 2 else int(draw.integers(4000))
            bad[start : start + 30] = draw.bytes(30)
        else:
            bad = draw.bytes(2000)
        try:
            from_bytes(bytes(bad), "a.zip")
        except ConfigError:
            continue
        assert number % 3 == 1, "only a changed number can be one"


def with_table(raw: bytes, table: bytes, padding: int = 0) -> bytes:
    """The same file with another table of archive, and an entry of zeros."""
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(file := io.BytesIO(), "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, table if entry.filename.endswith("data.pkl") else old.read(entry))
        new.writestr("archive/padding", bytes(padding))
    return file.getvalue()


@pytest.mark.parametrize(("table", "padding"), [
    (b"\x80\x02" + b"]" * 1_900_000 + b".", 0), (b"\x80\x02" + b"(" * 1_900_000 + b".", 0),
    (b"\x80\x02" + b"}" * 1_900_000 + b".", 0), (b"\x80\x02N" + b"\x85" * 1_900_000 + b".", 0),
    (b"\x80\x02" + b"N" * 2_100_000 + b".", 0), (b"\x80\x02" + b"]" * 9_000_000 + b".", 60_000_000),
], ids=["lists", "marks", "dicts", "tuples", "long", "long in a large file"])
def test_a_table_that_makes_more_than_a_race_has_is_never_read(
    raw: bytes, table: bytes, padding: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the table was read"))
    with pytest.raises(ConfigError, match=SENTENCE):
        from_bytes(with_table(raw, table, padding), "a.zip")


def test_a_race_of_many_small_matrices_is_read() -> None:
    """A thousand layers of width 8 have the longest table for their size."""
    config = TASK.fit(Config(n_layers=1000, d_model=8, n_heads=1, n_ctx=8, batch_size=1))
    raw = to_bytes(Race([Contender("deep", config, Recipe())], TASK, 1).run())
    assert from_bytes(raw, "a.zip").finished
