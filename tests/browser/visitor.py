"""Visitors without a browser: over HTTP and real websockets, as polite or rude as a test wants
them.

A kernel's websocket speaks `v1.kernel.websocket.jupyter.org`: the number of offsets, the offsets,
the channel, four parts in JSON, and buffers."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import uuid
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from itertools import accumulate

import psutil
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

PROTOCOL = "v1.kernel.websocket.jupyter.org"
SOON = 60.0
"""Seconds after which a kernel must have gone with its page."""
ARRIVED: list[str] = []
"""Kernels of all visitors so far."""


def arrive(address: str, path: str = "/") -> str:
    """Asks for the page; its kernel's id."""
    page = get(address, path)
    found = re.search(r'"kernelId": "([\w-]+)"', page)
    assert found, "the page names no kernel"
    ARRIVED.append(found[1])
    return found[1]


def get(address: str, path: str = "/") -> str:
    """Whatever is answered, as it was sent."""
    return asked(address, path)[1]


def asked(
    address: str, path: str = "/", method: str = "GET", **headers: str
) -> tuple[HTTPResponse, str]:
    """The answer to a request, and its body."""
    with closing(HTTPConnection(address.removeprefix("http://"), timeout=90)) as line:
        line.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = line.getresponse()
        return answer, answer.read().decode(errors="replace")


def enter(address: str, kernel: str, protocols: tuple[str, ...] = (PROTOCOL,)) -> ClientConnection:
    """A websocket to a kernel."""
    where = (
        f"{address.replace('http', 'ws')}/api/kernels/{kernel}/channels?session_id={uuid.uuid4()}"
    )
    names = [Subprotocol(name) for name in protocols] or None
    return connect(where, subprotocols=names, max_size=None, max_queue=None, close_timeout=1)


def frame(*parts: bytes, channel: bytes = b"shell") -> bytes:
    """Parts, and where they lie."""
    begin = 8 * (len(parts) + 3)
    offsets = list(accumulate((len(part) for part in (channel, *parts)), initial=begin))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + channel + b"".join(parts)


def message(kind: str, content: object, channel: bytes = b"shell") -> bytes:
    header = {
        "msg_id": str(uuid.uuid4()),
        "msg_type": kind,
        "session": "s",
        "username": "",
        "version": "5.3",
    }
    metadata = {"version": "1.0.0"}  # of the widgets' protocol
    return frame(
        *(json.dumps(part).encode() for part in (header, {}, metadata, content)), channel=channel
    )


def received(visit: ClientConnection, until: str) -> list[str]:
    """All that comes, up to what was waited for."""
    told = [""]
    while until not in told[-1]:
        told.append(str(visit.recv(timeout=60, decode=False), errors="replace"))
    return told


def turned_away(visit: ClientConnection) -> int:
    """The code with which the server closes a connection."""
    try:
        while True:
            visit.recv(timeout=20)
    except ConnectionClosed as closed:
        assert closed.rcvd, "the connection broke without a word"
        return closed.rcvd.code


def answers(visit: ClientConnection) -> bool:
    """Whether the kernel of a connection still does."""
    visit.send(message("kernel_info_request", {}))
    return bool(received(visit, "kernel_info_reply"))


def processes(kernel: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if f"kernel-{kernel}".startswith(process.info["name"] + "-")
        or any(f"kernel-{kernel}" in part for part in process.info["cmdline"] or ())
    ]


def seconds_until_gone(kernel: str) -> float:
    begun = time.monotonic()
    while processes(kernel) and time.monotonic() - begun < SOON:
        time.sleep(0.2)
    return time.monotonic() - begun


def serving(address: str) -> psutil.Process:
    """The process of a server, which another process of the tests may have started."""
    port = address.rpartition(":")[2]
    (running,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if {"explorer", "--port", port} <= {*(process.info["cmdline"] or ())}
    )
    return running


def kernels(address: str) -> set[int]:
    """Processes of all kernels that a server has started."""
    found = set()
    for child in serving(address).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found |= {child.pid for part in (child.name(), *child.cmdline()) if "kernel-" in part}
    return found


def numbers(address: str) -> dict[str, float]:
    """The numbers by name, with the reason where one has it; the text must be in Prometheus'
    format."""
    answer, text = asked(address, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(text))
    assert all(
        family.documentation and family.type in ("gauge", "counter", "summary")
        for family in families
    )
    return {
        sample.name + sample.labels.get("reason", ""): sample.value
        for family in families
        for sample in family.samples
    }


def neighbour() -> str:
    """An address of this machine by which its neighbours reach it; empty where it has none."""
    known = [
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]
    return next(iter(known), "")


def wait_until(holds: object, seconds: float = SOON, said: object = lambda: "") -> None:
    """Waits until a function says true; `said` has what is so instead."""
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, f"it took too long: {said()}"  # type: ignore[operator]
        time.sleep(0.2)
