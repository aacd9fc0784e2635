"""Numbers and events of the server for its operator, with nothing of a visitor in them.

The numbers are at /metrics, in the text format of Prometheus, and no visitor may read them. The events go to stderr, a
JSON object a line.
"""

# mypy: disallow-untyped-calls = False

from __future__ import annotations

import ipaddress
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from jupyter_server.auth.decorator import allow_unauthenticated
from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest
from tornado.web import HTTPError, RequestHandler

FORMAT = "text/plain; version=0.0.4; charset=utf-8"
THIS_MACHINE = ("127.0.0.0/8", "::1/128")
"""Networks whose addresses may read the numbers."""
PROXIES = ("x-forwarded-", "x-real-ip", "forwarded", "via")
"""Beginnings of the headers by which a proxy says that it asks for somebody else."""
REGISTRY = CollectorRegistry()
"""The numbers of this server alone; those of jupyter_server are in the library's own registry."""
REFUSED = Counter("explorer_refused", "Requests and connections that were refused, by reason.", ["reason"],
                  registry=REGISTRY)
DIED = Counter("explorer_workers_died", "Workers that died of a task.", registry=REGISTRY)
MADE = Summary("explorer_page_seconds", "Seconds from a visitor's request to the end of the page.", registry=REGISTRY)
LOG = logging.getLogger("explorer.events")
SELDOM = 1.0
"""Seconds between two lines about refusals for the same reason, at least: whoever is refused could fill a disk. All are
counted."""
_refused_at: dict[str, float] = {}


class Line(logging.Formatter):
    """Writes an event as JSON, with its time."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": at, "event": record.msg, **vars(record)["more"]})


def log_events() -> None:
    """Has events written to stderr from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(Line())
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)


def note(event: str, **more: float | str) -> None:
    """Notes an event: with numbers, and with a reason in the server's own words, never in a visitor's."""
    LOG.info(event, extra={"more": more})


def refused(reason: str) -> None:
    """Counts a refusal, and notes it."""
    REFUSED.labels(reason).inc()
    if time.monotonic() - _refused_at.get(reason, -SELDOM) >= SELDOM:
        _refused_at[reason] = time.monotonic()
        note("refused", reason=reason)


def worker_died() -> None:
    """Counts a worker that died, and notes it."""
    DIED.inc()
    note("worker_died")


def show(numbers: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
    """Adds numbers that are looked up when somebody reads them: name, description, function."""
    for name, (text, look) in numbers.items():
        Gauge(name, text, registry=REGISTRY).set_function(look)


def is_address(host: str) -> bool:
    """Whether a host is written as an address."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class Metrics(RequestHandler):
    """Handler of the numbers: for certain networks, and for no proxy that asks on behalf of a visitor."""

    def initialize(self, readers: Sequence[str]) -> None:
        """Takes the networks whose addresses may read."""
        self.readers = [ipaddress.ip_network(reader) for reader in readers]

    @allow_unauthenticated
    def get(self) -> None:
        """Answers with the numbers; 404 for everybody else."""
        if not self._may_read():
            raise HTTPError(404)
        self.set_header("Content-Type", FORMAT)
        self.finish(generate_latest(REGISTRY))

    def _may_read(self) -> bool:
        """Whether the request comes from a reader's address itself, and names the server as only a reader does.

        A proxy on this machine has such an address, too; it says for whom it asks, or passes on the public name.
        """
        host, names = self.request.host_name, [name.lower() for name in self.request.headers]
        passed_on = any(name.startswith(PROXIES) for name in names)
        local = host.lower() == "localhost" or is_address(host)
        sender = ipaddress.ip_address(self.request.remote_ip or "0.0.0.0")  # noqa: S104 (compared, not bound)
        return local and not passed_on and any(sender in network for network in self.readers)
