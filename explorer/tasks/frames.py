"""Messages between processes: a header in JSON, and bytes. Nothing that arrives is ever
unpickled."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from io import BufferedRWPair
from typing import Any, BinaryIO

import numpy as np

SIZES = struct.Struct("<II")
"""A message begins with two lengths in bytes: of its header, and of the payload after it."""
HEADER, PAYLOAD = 2**20, 2**30
"""The most bytes of each."""
Stream = BinaryIO | BufferedRWPair
"""A binary file: of a pipe, or of a socket."""


def send(stream: Stream, header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Writes a message: a header, which must be JSON's, and bytes."""
    head = json.dumps(header).encode()
    stream.write(SIZES.pack(len(head), len(payload)) + head + payload)
    stream.flush()


def receive(stream: Stream, most: int = PAYLOAD) -> tuple[dict[str, Any], bytes]:
    """Waits for a message, and gives its header and its bytes.

    Args:
        most: bytes that may follow the header.
    Raises:
        EOFError: the other process has closed its end.
        ValueError: it is no message, or one that is too long.
    """
    sizes = _exactly(stream, SIZES.size)
    head, size = SIZES.unpack(sizes)
    if head > HEADER or size > most:
        raise ValueError(
            f"a message may have {HEADER:,} bytes of header and {most:,} more; got {head:,} and {size:,}"
        )
    header = json.loads(_exactly(stream, head))
    if not isinstance(header, dict):
        raise ValueError(f"the header of a message must be an object; got {type(header).__name__}")
    return header, _exactly(stream, size)


def _exactly(stream: Stream, size: int) -> bytes:
    """So many bytes of a stream, for which it waits.

    Raises:
        EOFError: it ends before.
    """
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


# What follows a header is often a hundred small arrays. An archive of numpy's has a file for each,
# which takes a processor ten times as long.

SIZE = struct.Struct("<I")
"""Bytes of the values before the arrays."""
ARRAY = "array"
"""Key of the object that stands for an array; no other object among the values may have it."""


def packed(content: object) -> bytes:
    """Plain values, with arrays of numbers anywhere among them, as bytes for `unpacked`."""
    arrays: list[bytes] = []

    def placeholder(array: Any) -> dict[str, Any]:
        """The object that stands for an array: its type and shape."""
        arrays.append(array.tobytes())
        return {ARRAY: [array.dtype.str, array.shape]}

    # a search for circular references takes five times as long as everything else
    head = json.dumps(content, default=placeholder, check_circular=False).encode()
    return b"".join([SIZE.pack(len(head)), head, *arrays])


def unpacked(raw: bytes) -> Any:
    """The values of `packed`, lists for tuples; the arrays are views of `raw`, which cannot be
    written.

    Raises:
        ValueError: the bytes are of something else.
    """
    start = SIZE.size  # of the next array, once the values are read

    def array(value: dict[str, Any]) -> Any:
        """The array of a placeholder; other objects stay as they are."""
        nonlocal start
        if ARRAY not in value:
            return value
        kind, shape = value[ARRAY]
        entries = np.frombuffer(raw, kind, math.prod(shape), start).reshape(shape)
        start += entries.nbytes
        return entries

    try:
        start += SIZE.unpack_from(raw)[0]
        return json.loads(raw[SIZE.size : start], object_hook=array)
    except (struct.error, TypeError, ValueError) as error:
        raise ValueError(
            f"packed arrays follow the values that have them; got {raw[:16]!r}"
        ) from error
