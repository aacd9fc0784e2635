"""A pool that kernels share over a socket: it obeys whoever has the key, in plain data, and nobody
disturbs others."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from explorer import measuring, tasks
from explorer.config import Config
from explorer.measuring.outside import body_of, measure
from explorer.tasks import broker as module
from explorer.tasks.broker import KEY, MOST_TASKS, Broker, Client, Remote, payload_of
from explorer.tasks.frames import receive, send
from explorer.tasks.pool import Answer, Order, Pool, Task, TaskError

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=2, n_seeds=2)
DEEP = SMALL.replace(n_layers=1000, d_model=64, n_seeds=1)
SOON = 60.0


@pytest.fixture(scope="module")
def broker(shared: Pool, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    return Broker(shared, tmp_path_factory.mktemp("server"))


@pytest.fixture
def remote(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """This process as a kernel of the broker's server."""
    monkeypatch.setenv(KEY, broker.key)
    made = Remote(broker.address)
    monkeypatch.setattr(tasks, "place", lambda: made)
    return made


class Stranger:
    """A process that speaks to the socket as it likes."""

    def __init__(self, broker: Broker, key: str) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(SOON)
        self.connection.connect(broker.address)
        self.stream: Any = self.connection.makefile("rwb")
        send(self.stream, {"key": key})

    def asks(self, **header: Any) -> None:
        send(self.stream, header)

    def close(self) -> None:
        for part in (self.stream, self.connection):
            with suppress(OSError):  # what is still to be sent has nobody who takes it
                part.close()

    def is_cut_off(self) -> bool:
        """Whether the broker closes the connection, after whatever it still says."""
        try:
            while True:
                receive(self.stream)
        except (EOFError, ConnectionError):
            return True


@pytest.fixture
def stranger(broker: Broker) -> Iterator[Stranger]:
    with closing(Stranger(broker, broker.key)) as made:
        yield made


def body(config: Config) -> str:
    return body_of(config, range(config.seed, config.seed + 1), (1, 0), True)


@pytest.mark.usefixtures("remote")
def test_a_kernel_finds_the_same_numbers_as_this_process() -> None:
    outside, here = (
        measure(SMALL, on_seed=lambda _: None),
        measuring.measure(SMALL, on_seed=lambda _: None),
    )
    for key, values in here.values.items():
        np.testing.assert_array_equal(outside.values[key], values)


@pytest.mark.usefixtures("remote")
def test_what_one_kernel_had_computed_another_is_given(broker: Broker) -> None:
    measure(SMALL.replace(seed=5))
    before = broker.pool.computed
    other = Remote(broker.address)
    results = []
    other.submit(
        Task("run", body_of(SMALL.replace(seed=5), range(5, 7), (1, 0), True), Order.MAP),
        results.append,
    )
    wait_until(lambda: bool(results) and results[-1].last)
    assert results[-1].result
    assert broker.pool.computed == before


def test_the_socket_is_its_users_alone(broker: Broker) -> None:
    assert stat.S_IMODE(Path(broker.address).stat().st_mode) == 0o600


CONNECTS = """
import os, socket, sys
if len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    sys.exit(type(error).__name__)
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone can be somebody else"
)
@pytest.mark.parametrize("folder", [0o700, 0o755])
def test_another_user_of_the_machine_cannot_connect(shared: Pool, folder: int) -> None:
    """Neither into the server's folder, as `mkdtemp` makes it, nor to the socket if the folder were
    open to all."""
    with TemporaryDirectory(prefix="explorer-", dir="/tmp") as made:  # whose parents all may enter
        assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
        Path(made).chmod(folder)
        command = [sys.executable, "-c", CONNECTS, Broker(shared, Path(made)).address]
        for user, said in (([], ""), (["65534"], "PermissionError\n")):
            done = subprocess.run([*command, *user], stderr=subprocess.PIPE, text=True, check=False)
            assert (done.returncode, done.stderr) == (int(bool(said)), said)


@pytest.mark.parametrize("key", ["", "guess", "0" * 64])
def test_who_has_not_the_key_is_sent_away(broker: Broker, key: str) -> None:
    before = broker.pool.computed
    with closing(Stranger(broker, key)) as intruder:
        with suppress(ConnectionError):
            intruder.asks(task=1, kind="run", body=body(SMALL.replace(seed=31)), order=0)
        assert intruder.is_cut_off()
    assert broker.pool.computed == before


@pytest.mark.parametrize(
    "header",
    [
        {"task": "one"},
        {"task": 1},
        {"task": 1, "kind": "run", "body": "{}", "order": 99},
        {},
        {"cancel": "all"},
    ],
    ids=str,
)
def test_nonsense_ends_its_own_connection_alone(
    stranger: Stranger, broker: Broker, remote: Remote, header: dict[str, Any]
) -> None:
    stranger.asks(**header)
    assert stranger.is_cut_off()
    assert measure(SMALL.replace(seed=40 + len(header))).seconds > 0
    assert remote.slots
    assert broker.pool.waiting == 0


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00" * 64])
def test_another_language_is_not_spoken(stranger: Stranger, data: bytes) -> None:
    stranger.connection.sendall(data)
    stranger.connection.shutdown(socket.SHUT_WR)
    assert stranger.is_cut_off()


def test_a_thousand_tasks_at_once_cut_off_who_sends_them(
    stranger: Stranger, broker: Broker, remote: Remote
) -> None:
    with suppress(ConnectionError):
        for number in range(4 * MOST_TASKS):
            stranger.asks(task=number, kind="run", body=body(DEEP.replace(seed=number)), order=0)
    assert stranger.is_cut_off()
    wait_until(lambda: broker.pool.waiting == 0)
    assert measure(SMALL.replace(seed=50)).seconds > 0
    assert remote.slots


@pytest.mark.usefixtures("remote")
def test_who_reads_may_be_sent_any_number_of_results(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(SMALL).seconds > 0  # the workers are there
    asked = body(SMALL.replace(seed=61))
    for number in range(6):
        stranger.asks(task=number, kind="run", body=asked, order=0)
        header, payload = receive(stranger.stream)
        while not header["done"]:
            header, payload = receive(stranger.stream)
        assert header["task"] == number
        monkeypatch.setattr(module, "UNREAD", 2.5 * len(payload))


def test_who_reads_nothing_is_cut_off(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD", 100)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        theirs.settimeout(0.0)
        client = Client(broker, ours, 0)
        client._put(7, Answer(so_far=bytes(60)))
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        client._put(7, Answer(so_far=bytes(60)))
        assert theirs.recv(1) == b"", "the connection has ended"


def test_a_body_that_lies_is_refused_in_a_sentence(stranger: Stranger) -> None:
    stranger.asks(
        task=1,
        kind="run",
        body=body(SMALL).replace('"n_layers": 2', '"n_layers": 1000000000'),
        order=0,
    )
    header, _ = receive(stranger.stream)
    assert header["error"] == "ConfigError"
    assert "n_layers" in header["message"]


def test_what_a_kernel_left_behind_is_not_computed(broker: Broker) -> None:
    leaving = Stranger(broker, broker.key)
    for number in range(8):
        leaving.asks(task=number, kind="run", body=body(DEEP.replace(seed=100 + number)), order=0)
    wait_until(lambda: broker.pool.waiting >= 4)
    leaving.close()
    wait_until(lambda: broker.pool.waiting == 0)


def test_a_server_that_is_gone_is_said_and_one_that_comes_back_is_found(
    shared: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    monkeypatch.setenv(KEY, "none yet")
    remote = Remote(str(tmp_path / "tasks"))
    monkeypatch.setattr(tasks, "place", lambda: remote)
    with pytest.raises(TaskError, match="the server that computes for this page is out of reach"):
        measure(SMALL)
    broker = Broker(shared, tmp_path)
    monkeypatch.setenv(KEY, broker.key)
    assert measure(SMALL).seconds > 0


def wait_until(holds: Any) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_results_so_far_are_sent_whatever_else_waits(broker: Broker) -> None:
    """A client that is sent what is new alone cannot do without any part."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        client = Client(broker, ours, 0)
        for answer in (
            Answer(0.1),
            Answer(0.2),
            Answer(so_far=b"one"),
            Answer(so_far=b"two"),
            Answer(1.0, b"all"),
        ):
            client._put(7, answer)
        sent = [client.outgoing.get(timeout=SOON) for _ in range(4)]
        assert client.outgoing.empty()
        assert [payload_of(item[1]) for item in sent if item] == [b"", b"one", b"two", b"all"]
