"""Messages between processes: a header in JSON, and bytes. Nothing that arrives is ever unpickled."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from io import BufferedRWPair
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

SIZES = struct.Struct("<II")
"""Bytes of the header, and of what follows it."""
HEADER, PAYLOAD = 2**20, 2**30
"""The most bytes of each."""


Stream = BinaryIO | BufferedRWPair
"""A binary file: of a pipe, or of a socket."""
Arrays = Mapping[str, NDArray[Any]]


def send(stream: Stream, header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Writes a message."""
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
        raise ValueError(f"a message may have {HEADER:,} bytes of header and {most:,} more; got {head:,} and {size:,}")
    header = json.loads(_exactly(stream, head))
    if not isinstance(header, dict):
        raise ValueError(f"the header of a message must be an object; got {type(header).__name__}")
    return header, _exactly(stream, size)


def _exactly(stream: Stream, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


# What follows a header is often a hundred small arrays. An archive of numpy's has a file for each, which takes a
# processor ten times as long.


def packed(about: object, arrays: Arrays) -> bytes:
    """Plain values and arrays of numbers as bytes, for `unpacked`."""
    head = json.dumps([about, [[name, array.dtype.str, array.shape] for name, array in arrays.items()]]).encode()
    return b"".join([struct.pack("<I", len(head)), head, *(array.tobytes() for array in arrays.values())])


def unpacked(raw: bytes) -> tuple[Any, Arrays]:
    """The values and arrays of `packed`; the arrays are views of `raw`, which cannot be written.

    Raises:
        ValueError: the bytes are of something else.
    """
    try:
        (size,) = struct.unpack_from("<I", raw)
        about, kinds = json.loads(raw[4 : 4 + size])
    except (struct.error, TypeError, ValueError) as error:
        raise ValueError(f"packed arrays begin with a list of them; got {raw[:16]!r}") from error
    arrays, start = {}, 4 + size
    for name, kind, shape in kinds:
        arrays[name] = np.frombuffer(raw, kind, math.prod(shape), start).reshape(shape)
        start += arrays[name].nbytes
    return about, arrays
