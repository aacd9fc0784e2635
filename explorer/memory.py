"""Memory of this machine, and the ledger in which the processes of one server claim parts of it."""

from __future__ import annotations

import json
import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.translation import TranslatedError

if TYPE_CHECKING:
    from filelock import FileLock

PAGE = 200e6
"""Bytes that a page's kernel takes beside what it shares with others."""
WORKER = 600e6
"""Bytes that a process takes that computes an ordinary design; what it needs beyond is claimed from
the ledger."""
LEDGER = "EXPLORER_MEMORY_LEDGER"
"""Environment variable of a served kernel: the file of its server's ledger."""

PATIENCE = 5.0
"""Seconds after which `filelock.Timeout` is raised where another process holds the ledger."""


def environment(variable: str, default: float) -> float:
    """A limit: the environment's where it is set, so that a private machine can allow more, a
    public one less.

    Raises:
        ValueError: the variable is set to something that is no number, or below 0.
    """
    text = os.environ.get(variable, str(default))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise TranslatedError(
            "{name} must be a number of at least 0; got {text!r}", name=variable, text=text
        )
    return value


@cache
def machine_memory() -> float:
    """Bytes of memory that this machine, or the container or service that it is, has."""
    return min([float(physical_memory()), *control_group_limits(Path("/"))])


def physical_memory() -> int:
    """Bytes of memory of the machine itself.

    The operating system is asked, since each `Config` is held against it, and theory works where
    psutil is not installed. Windows has no `sysconf`; there psutil asks.
    """
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.virtual_memory().total)


def control_group_limits(root: Path) -> list[float]:
    """Memory limits, in bytes, of this process's Linux control group and of all groups around it.

    A container sees its own group as the topmost; a systemd service (`MemoryMax=`) lies further
    down.

    Args:
        root: the folder in which `proc` and `sys` lie.
    """
    try:
        lines = (
            (root / "proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
        )
    except OSError:  # not Linux, or no /proc
        lines = []
    files = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = ("memory", "memory.limit_in_bytes") if controllers else (".", "memory.max")
        top = root / "sys/fs/cgroup" / folder
        group = top / path.strip("/")
        files += [place / name for place in (group, *group.parents) if place.is_relative_to(top)]
    limits = []
    for file in files:
        try:
            limits.append(float(int(file.read_text(encoding="ascii"))))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return limits


class Ledger:
    """Claims of processes to one budget of memory, in a file. A claim ends with its process,
    however that ends.

    Args:
        path: the file; every process of a server names the same one.
    """

    def __init__(self, path: str | Path) -> None:
        from filelock import FileLock  # only a server's processes have a ledger

        self._path = Path(path)
        self._lock: FileLock = FileLock(f"{path}.lock", timeout=PATIENCE)

    def open(self, budget: float) -> None:
        """Begins an empty ledger over so many bytes."""
        self._path.write_text(json.dumps({"budget": budget, "claims": {}}), encoding="ascii")

    def free(self) -> float:
        """Bytes that no process but this one has claimed."""
        with self._lock:
            return self._free(*self._read())

    def claim(self, size: float) -> bool:
        """Sets this process's claim to so many bytes if they are free; else changes nothing and
        returns False."""
        with self._lock:
            budget, claims = self._read()
            if size > max(self._free(budget, claims), claims.get(os.getpid(), 0.0)):
                return False
            claims[os.getpid()] = size
            with self._path.open(
                "r+", encoding="ascii"
            ) as file:  # emptied first, it would stay empty on a full disk
                file.write(json.dumps({"budget": budget, "claims": claims}))
                file.truncate()
            return True

    def _read(self) -> tuple[float, dict[int, float]]:
        import psutil

        content = json.loads(self._path.read_text(encoding="ascii"))
        claims = {int(process): size for process, size in content["claims"].items()}
        alive = {process: size for process, size in claims.items() if psutil.pid_exists(process)}
        return content["budget"], alive

    @staticmethod
    def _free(budget: float, claims: dict[int, float]) -> float:
        return budget - sum(size for process, size in claims.items() if process != os.getpid())
