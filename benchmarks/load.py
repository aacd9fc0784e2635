"""Load of a server: real visitors, without browsers, open its page at once and move a slider again
and again.

    python -m benchmarks.load --visitors 1 4 16 --seconds 60

Each visitor's designs are their own, so that nothing is shared, and the next move comes with the
verdict on the last: a person pauses, and so does a browser. The visitors' own work, on the same
processors, is stated beside the server's."""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import mean, median
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import psutil

from tests.browser.conftest import server
from tests.browser.visitor import arrive, asked, enter, message, serving

VISITORS, SECONDS = (1, 2, 4, 8, 16, 32), 60.0
CROWD, PROCESSORS = 16, 2
"""Visitors and processors that the limits are stated for."""
OPEN, FIRST, SLOWER, DOTS, SPREAD, FOLLOWED, RESTING = 12.0, 12.0, 1.1, 0.5, 1.6, 0.3, 0.06
"""Seconds until every page has its dots; of a first move; of the median later move, over the
processor time of all visitors' moves on all processors; until its first dots; its 95th percentile
over its median; of a move that another visitor has made before; and of processor time a minute of a
page that nobody touches: a thousandth."""
PATIENCE, QUIET, REST = 120.0, 30.0, 10.0
"""Seconds after which an answer counts as missing; of looking at a page that nobody touches; and
before that."""
LESSON, CALM = 8, 2.0
"""Moves of a class that follows one story; seconds within which they all move who do not move in
the same instant."""
OFF_SCREEN = 2
"""Of the charts, the last ones: a browser says that they are not on the screen, 1440 × 1000 pixels
large."""
UNIT = 2.0**-14


class Move(NamedTuple):
    """Seconds from a move to the first dots, to the last chart and to the verdict."""

    dots: float
    chart: float
    verdict: float


class Visitor:
    """A page, as far as its kernel can tell.

    Args:
        address: of the server.
        number: of the visitor, from 0.
        connections: are closed when the visitors go.
    """

    def __init__(self, address: str, number: int, connections: ExitStack) -> None:
        self.address, self.number, self.connections = address, number, connections
        self.models: dict[str, dict[str, Any]] = {}
        """Of the page's parts, by their number."""
        self.page, self.sent, self.number_of_acts = "", 0, 0
        self.moves: list[Move] = []
        self.opened = self.dotted = 0.0
        """Seconds until the page is there, and its first dots."""

    def arrive(self, begun: float) -> None:
        """Opens the page, and waits for the verdict on its first design."""
        self.socket = self.connections.enter_context(enter(self.address, arrive(self.address)))
        control = {
            "comm_id": str(uuid.uuid4()),
            "target_name": "jupyter.widget.control",
            "data": {},
        }
        self.socket.send(message("comm_open", control))
        self._tell(control["comm_id"], {"method": "request_states"})
        while not self.models:
            for name, model in self._receive().get("states", {}).items():
                if "parts" in (page := model["state"].get("state", {})):
                    self.page, self.sent, self.models = name, page["sent"], page["parts"]
        self.opened = time.monotonic() - begun
        self.charts = self._having("figure")
        self.controls = next(
            name
            for name in self._having("sections")
            if "init_variance" in self.models[name]["values"]
        )
        (self.status,), (header,) = self._having("fraction"), self._having("undoes")
        self._say(["shown", self.sent])
        self._act(header, "act", ["shown", ""])
        for chart in self.charts[-OFF_SCREEN:]:
            self._act(chart, "act", ["seen", False])
        while not (self.dotted and self.models[self.status]["state"] == "idle"):
            if not self.dotted and any(map(self._has_dots, self.charts)):
                self.dotted = time.monotonic() - begun
            else:
                self._states()

    def move(self, step: int) -> Move:
        """Moves the slider of the init variance, and waits for the verdict."""
        values = {**self.models[self.controls]["values"], "init_variance": 1 + step * UNIT}
        begun, dots, chart, computes = time.monotonic(), 0.0, 0.0, False
        self._act(self.controls, "set", {"values": values})
        while not computes or self.models[self.status]["state"] != "idle":
            states = self._states()
            now = time.monotonic() - begun
            computes |= states.get(self.status, {}).get("state") == "computing"
            for state in map(states.get, self.charts):
                if state and "figure" in state:
                    chart = now
                if state and state.get("stale") is False:
                    dots = dots or now
        self.moves.append(Move(dots, chart, time.monotonic() - begun))
        return self.moves[-1]

    def keep_moving(self, until: float) -> None:
        """Moves on and on, to designs that nobody else has."""
        while time.monotonic() < until:
            self.move(1 + self.number + 64 * len(self.moves))

    def _states(self) -> Mapping[str, dict[str, Any]]:
        """Waits for the next changes of the page's parts, and notes them.

        Raises:
            RuntimeError: the page says that something failed.
        """
        states: dict[str, dict[str, Any]] = self._receive().get("content", {}).get("parts", {})
        for name, state in states.items():
            self.models.setdefault(name, {}).update(state)
        status = self.models[self.status]
        if status["state"] in ("failed", "refused"):
            raise RuntimeError(f"the page is {status['state']}: {status['text']}")
        return states

    def _receive(self) -> dict[str, Any]:
        """Content of the next message of a widget."""
        while True:
            frame = self.socket.recv(timeout=PATIENCE, decode=False)
            offsets = struct.unpack_from(f"<{int.from_bytes(frame[:8], 'little')}Q", frame, 8)
            header, content = (
                json.loads(frame[offsets[part] : offsets[part + 1]]) for part in (1, 4)
            )
            if header["msg_type"] == "comm_msg":
                data: dict[str, Any] = content["data"]
                return data

    def _act(self, part: str, verb: str, content: object) -> None:
        """Sends what a person does on a part of the page, as `parts.PageWidget` says."""
        self.number_of_acts += 1
        self._say([self.number_of_acts, int(part), verb, content])

    def _say(self, content: object) -> None:
        """Sends a message to the page's widget."""
        self._tell(self.page, {"method": "custom", "content": content})

    def _tell(self, comm: object, data: Mapping[str, object]) -> None:
        """Sends a message to a widget."""
        self.socket.send(message("comm_msg", {"comm_id": comm, "data": data}))

    def _has_dots(self, chart: str) -> bool:
        """Whether a chart was sent with dots."""
        return '"markers"' in json.dumps(self.models[chart]["figure"])

    def _having(self, trait: str) -> list[str]:
        """Numbers of the parts that have a trait, in the order in which they were made."""
        return sorted((name for name, state in self.models.items() if trait in state), key=int)


def parts(root: psutil.Process) -> dict[str, list[psutil.Process]]:
    """The processes of a server: itself, its workers, the pages' kernels, and others, as what
    kernels are forked of."""
    found: dict[str, list[psutil.Process]] = {
        "server": [root],
        "kernels": [],
        "workers": [],
        "others": [],
    }
    for process in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = " ".join([process.name(), *process.cmdline()])
            name = "workers" if "explorer.tasks.worker" in words else "others"
            found["kernels" if "kernel-" in words or "ipykernel" in words else name].append(process)
    return found


def processor_seconds(
    root: psutil.Process, before: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """Processor time of each part of a server, of those that have ended, and of the visitors, since
    `before`."""
    found = {"ended": 0.0, "visitors": sum(psutil.Process().cpu_times()[:2])}
    for name, processes in parts(root).items():
        times = [process.cpu_times() for process in processes]
        found[name] = sum(one.user + one.system for one in times)
        found["ended"] += sum(one.children_user + one.children_system for one in times)
    return {name: time_ - before.get(name, 0.0) for name, time_ in found.items()}


def megabytes(root: psutil.Process) -> dict[str, float]:
    """Memory of a server: pages that several processes share are divided among them."""
    held = {
        name: [process.memory_full_info().pss / 1e6 for process in processes]
        for name, processes in parts(root).items()
    }
    return {
        "kernel": median(held["kernels"]),
        "largest_kernel": max(held["kernels"]),
        "workers": sum(held["workers"]),
        "server": sum(held["server"]),
        "all": sum(map(sum, held.values())),
    }


class Crowd:
    """Visitors of one server. What one of them meets with is an error of all, and is counted."""

    def __init__(self, address: str, log: Path, count: int, connections: ExitStack) -> None:
        self.address, self.log, self.root = address, log, serving(address)
        self.visitors = [Visitor(address, number, connections) for number in range(count)]
        self.errors: list[str] = []

    def all(self, act: Callable[[Visitor], object]) -> None:
        """Has all visitors do something at once; one who meets with an error goes."""

        def tried(visitor: Visitor) -> bool:
            try:
                act(visitor)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                self.note(f"visitor {visitor.number}: {type(error).__name__}: {error}")
                return False
            return True

        with ThreadPoolExecutor(len(self.visitors)) as pool:
            stayed = list(pool.map(tried, self.visitors))
        self.visitors = [
            visitor for visitor, stays in zip(self.visitors, stayed, strict=True) if stays
        ]
        if not self.visitors:
            raise SystemExit("no visitor is left")

    def arrive(self) -> None:
        """Has all visitors open the page, and waits until the next visitor's kernel is there,
        too."""
        begun = time.monotonic()
        self.all(lambda visitor: visitor.arrive(begun))
        while (
            not json.loads(asked(self.address, "/health")[1])["waiting"]
            and time.monotonic() < begun + PATIENCE
        ):
            time.sleep(0.2)

    def note(self, error: str) -> None:
        """Counts an error, and prints it."""
        self.errors.append(error)
        print(error, flush=True)

    def count_errors(self) -> float:
        """How many errors visitors have met, and tracebacks the server has logged."""
        for text in self.log.read_text().split("Traceback")[1:]:
            self.note(f"the server: Traceback{text}")
        return float(len(self.errors))


@contextmanager
def crowd(count: int) -> Iterator[Crowd]:
    """A new server and its visitors, who have not come yet."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with (
            server(["serve", "--max-pages", str(count)], log) as address,
            ExitStack() as connections,
        ):
            found = Crowd(address, log, count, connections)
            time.sleep(REST)  # the kernel that waits for the first visitor is there by then
            yield found


def late(times: Sequence[float]) -> float:
    """The 95th percentile."""
    return float(np.percentile(times, 95))


def load(count: int, seconds: float) -> dict[str, dict[str, float]]:
    """So many visitors who arrive, move once, and then for so many seconds."""
    with crowd(count) as found:
        found.arrive()
        opened, dotted = (
            sorted(getattr(visitor, name) for visitor in found.visitors)
            for name in ("opened", "dotted")
        )
        found.all(lambda visitor: visitor.keep_moving(time.monotonic() + 1e-3))
        before, begun = processor_seconds(found.root), time.monotonic()
        found.all(lambda visitor: visitor.keep_moving(begun + seconds))
        took, used = time.monotonic() - begun, processor_seconds(found.root, before)
        first = Move(*map(max, zip(*(visitor.moves[0] for visitor in found.visitors), strict=True)))
        later = [visitor.moves[1:] for visitor in found.visitors]
        every, counts = [*chain(*later)], [len(moves) for moves in later]
        dots, chart, verdict = zip(*every, strict=True)
        times = {
            "dots": median(dots),
            "dots_95": late(dots),
            "chart": median(chart),
            "chart_95": late(chart),
            "seconds": median(verdict),
            "seconds_95": late(verdict),
        }
        used |= {"all": sum(used.values()) - used["visitors"]}
        return {
            f"{count} visitors, page": {"first": opened[0], "last": opened[-1]},
            f"{count} visitors, dots of the page": {"first": dotted[0], "seconds": dotted[-1]},
            f"{count} visitors, first move, the slowest": {
                "dots": first.dots,
                "chart": first.chart,
                "seconds": first.verdict,
            },
            f"{count} visitors, later moves": times
            | {
                "a_second": len(every) / took,
                "slowest_over_fastest_visitor": min(counts) / max(counts),
                "errors": found.count_errors(),
                "limit_errors": 0.0,
            },
            f"{count} visitors, processor seconds a move": {
                name: time_ / len(every) for name, time_ in used.items()
            },
            f"{count} visitors, megabytes": megabytes(found.root),
        }


def idle() -> dict[str, float]:
    """Processor time that a page takes which nobody touches."""
    with crowd(1) as found:
        found.arrive()
        time.sleep(REST)
        before = processor_seconds(found.root)
        time.sleep(QUIET)
        return {
            name: 60 * time_ / QUIET
            for name, time_ in processor_seconds(found.root, before).items()
        }


def lesson(count: int, spread: float) -> dict[str, float]:
    """A class that follows one story: all make each move within `spread` seconds of the first
    visitor's verdict."""

    def follow(visitor: Visitor, step: int) -> None:
        time.sleep(spread * (visitor.number - 1) / (count - 1))
        followed.append(visitor.move(step).verdict)

    with crowd(count) as found:
        found.arrive()
        first, *others = found.visitors
        told, followed, rounds = [], list[float](), []
        for step in range(1, LESSON + 1):
            told.append(first.move(step).verdict)
            found.visitors, begun = others, time.monotonic()
            found.all(partial(follow, step=step))
            rounds.append((time.monotonic() - begun) / len(others))
        return {
            "first_visitor": median(told[1:]),
            "seconds": median(followed),
            "seconds_95": late(followed),
            "seconds_a_visitor": mean(rounds),
            "errors": found.count_errors(),
        }


def wanted(results: dict[str, dict[str, float]]) -> None:
    """Writes the limits beside the figures."""
    name = f"{CROWD} visitors"
    if f"{name}, later moves" in results:
        results[f"{name}, dots of the page"]["limit_seconds"] = OPEN
        results[f"{name}, first move, the slowest"]["limit_seconds"] = FIRST
        later = results[f"{name}, later moves"]
        results[f"{name}, dots of later moves"] = {"seconds": later["dots"], "limit_seconds": DOTS}
        results[f"{name}, spread"] = {
            "ratio": later["seconds_95"] / later["seconds"],
            "limit": SPREAD,
        }
        if alone := results.get("1 visitors, processor seconds a move"):
            later["limit_seconds"] = SLOWER * CROWD * alone["all"] / PROCESSORS


def main(
    visitors: Sequence[int] = (1, CROWD), seconds: float = 20.0
) -> dict[str, dict[str, float]]:
    """Figures of each number of visitors, an idle page and a class; limits among them."""
    results: dict[str, dict[str, float]] = {}
    for count in visitors:
        results |= load(count, seconds)
    wanted(results)
    results["an idle page, processor seconds a minute"] = (used := idle()) | {
        "seconds": used["kernels"],
        "limit_seconds": RESTING,
    }
    for name, spread in (("in one instant", 0.0), (f"within {CALM:.0f} s", CALM)):
        results[f"a class of {CROWD}, moves {name}"] = lesson(CROWD, spread) | {
            "limit_seconds": FOLLOWED
        }
    return results


if __name__ == "__main__":
    from benchmarks.results import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, nargs="+", default=VISITORS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    print(table(main(**vars(parser.parse_args()))))
