"""What a file of tensors may hold, before anything is made of it: it may come from anybody.

torch reads it with `weights_only`, which runs nothing. What remains are files that are small and take much: packed
entries, views that repeat one number, lists within lists. None of them is in a file that torch wrote of a race.
"""

from __future__ import annotations

import zipfile
from typing import BinaryIO

import torch

MOST_PARTS, DEEPEST = 5_000_000, 12
"""Values in a file, each counted where it stands, and lists within lists."""
LARGEST_TABLE, TABLE_SHARE = 2_000_000, 1 / 6
"""Bytes of the table of contents, which Python reads step by step at some 2 s a megabyte; of a large file more, as many
small matrices have a long one."""
MAKERS = (b"]", b"}", b"(", b"t", b"l", b"d", b"\x85", b"\x86", b"\x87")
"""Instructions of a table that each make a list, tuple or dict of 50 bytes and more from one byte."""
MOST_MADE = 1 / 6
"""Of a table's bytes, those that may be such instructions. Tables that torch wrote of races have 9 %."""


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
