"""Messages between processes: a header in JSON, and bytes. Nothing that arrives is ever unpickled."""

from __future__ import annotations

import itertools
import json
import math
import queue
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BufferedRWPair
from typing import Any, BinaryIO

import numpy as np

SIZES = struct.Struct("<II")
"""Bytes of the header, and of what follows it."""
HEADER, PAYLOAD = 2**20, 2**30
"""The most bytes of each."""
LOOK = 1.0
"""Seconds of a look at whether a message has come."""


Stream = BinaryIO | BufferedRWPair
"""A binary file: of a pipe, or of a socket."""


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


class Ear:
    """Messages of another process, read on a thread, so that whoever waits for one need not wait for ever.

    Args:
        stream: a pipe from the process.
        on_message: asked with the header of each message, on the thread; true where it is for nobody else.
    """

    def __init__(self, stream: Stream, on_message: Callable[[dict[str, Any]], bool] = lambda _: False) -> None:
        self._stream, self._on_message = stream, on_message
        self._messages: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="explorer-ear", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with suppress(EOFError, OSError, ValueError):
            while True:
                header, payload = receive(self._stream)
                if not self._on_message(header):
                    self._messages.put((header, payload))
        self._messages.put(None)

    def hear(self, looks: int | None = None) -> tuple[dict[str, Any], bytes]:
        """Waits for the next message.

        Args:
            looks: seconds to wait at most, counted one by one: while this process is stopped, too, none passes. None
                for no limit.
        Raises:
            EOFError: the process has ended, or sends what is no message.
            TimeoutError: it has said nothing.
        """
        for _ in range(looks) if looks else itertools.repeat(None):
            try:
                message = self._messages.get(timeout=LOOK if looks else None)
            except queue.Empty:
                continue
            if message is None:
                self._messages.put(None)
                raise EOFError
            return message
        raise TimeoutError

    def close(self) -> None:
        """Waits until all is read, which is so once the process has ended, and closes the pipe."""
        self._thread.join()
        self._stream.close()


def _exactly(stream: Stream, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


# What follows a header is often a hundred small arrays. An archive of numpy's has a file for each, which takes a
# processor ten times as long.

SIZE = struct.Struct("<I")
"""Bytes of the values before the arrays."""
ARRAY = "array"
"""Key of the object that stands for an array; no other object among the values may have it."""


def packed(content: object) -> bytes:
    """Plain values, with arrays of numbers anywhere among them, as bytes for `unpacked`."""
    arrays: list[bytes] = []

    def placeholder(array: Any) -> dict[str, Any]:
        arrays.append(array.tobytes())
        return {ARRAY: [array.dtype.str, array.shape]}

    # to look for circles takes five times as long as all else
    head = json.dumps(content, default=placeholder, check_circular=False).encode()
    return b"".join([SIZE.pack(len(head)), head, *arrays])


def unpacked(raw: bytes) -> Any:
    """The values of `packed`, lists for tuples; the arrays are views of `raw`, which cannot be written.

    Raises:
        ValueError: the bytes are of something else.
    """
    start = SIZE.size

    def array(value: dict[str, Any]) -> Any:
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
        raise ValueError(f"packed arrays follow the values that have them; got {raw[:16]!r}") from error
