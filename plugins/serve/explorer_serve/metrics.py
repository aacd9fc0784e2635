"""Numbers of the server for its operator, with nothing of a visitor in them.

They are at /metrics, in the text format of Prometheus, and no visitor may read them.
"""

# mypy: disallow-untyped-calls = False

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence

from jupyter_server.auth.decorator import allow_unauthenticated
from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest
from tornado.web import HTTPError, RequestHandler

from explorer.log import SELDOM, note

FORMAT = "text/plain; version=0.0.4; charset=utf-8"
THIS_MACHINE = ("127.0.0.0/8", "::1/128")
"""Networks whose addresses may read the numbers."""
PROXIES = ("x-forwarded-", "x-real-ip", "forwarded", "via")
"""Beginnings of the headers by which a proxy says that it asks for somebody else."""
REGISTRY = CollectorRegistry()
"""The numbers of this server alone; those of jupyter_server are in the library's own registry."""
REFUSED = Counter(
    "explorer_refused",
    "Requests and connections that were refused, by reason.",
    ["reason"],
    registry=REGISTRY,
)
DIED = Counter("explorer_workers_died", "Workers that died and were replaced.", registry=REGISTRY)
MADE = Summary(
    "explorer_page_seconds",
    "Seconds from a visitor's request to the end of the page.",
    registry=REGISTRY,
)
FAULTS = Counter(
    "explorer_faults",
    "Faults of the server that were caught, and told in the log.",
    registry=REGISTRY,
)
_refused_at: dict[str, float] = {}


def refused(reason: str) -> None:
    """Counts a refusal, and notes it, each reason once a second at most: whoever is refused could
    fill a disk."""
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
    """Handler of the numbers: for certain networks, and for no proxy that asks on behalf of a
    visitor."""

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
        """Whether the request comes from a reader's address itself, and names the server as only a
        reader does.

        A proxy on this machine has such an address, too; it says for whom it asks, or passes on the
        public name."""
        host, names = self.request.host_name, [name.lower() for name in self.request.headers]
        passed_on = any(name.startswith(PROXIES) for name in names)
        local = host.lower() == "localhost" or is_address(host)
        sender = ipaddress.ip_address(self.request.remote_ip or "0.0.0.0")  # noqa: S104 (compared, not bound)
        return local and not passed_on and any(sender in network for network in self.readers)
