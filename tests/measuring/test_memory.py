"""Memory after a large design: a process of its own measures three, as a visitor's kernel does over
the hours."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from explorer import Config
from explorer.measuring import measure, observe
from explorer.stopping import Rarely

CHILD = """
import json, resource, threading
import psutil
from explorer.config import Config
from explorer.measuring import measure

def resident(config):
    thread = threading.Thread(target=measure, args=[config])  # as the page does: the C library keeps more of a thread's
    thread.start()
    thread.join()
    return psutil.Process().memory_info().rss

large = Config(n_layers=96, d_model=64, n_ctx=512, n_seeds=1, residual_attention="scores")
told = [resident(Config()), resident(large), resident(Config(n_layers=11))]
print(json.dumps([*told, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the system decides what a process keeps"
)
def test_memory_comes_back_after_a_large_design() -> None:
    """To 1.5 × a fresh page's, and no cache keeps what only the large one needed."""
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    fresh, _, after, peak = json.loads(done.stdout)
    assert peak - fresh > 450e6, f"{(peak - fresh) / 1e6:.0f} MB were taken: not a large design"
    assert after < 1.5 * fresh, f"{after / 1e6:.0f} MB after it, {fresh / 1e6:.0f} MB before"


def test_designs_that_follow_each_other_use_the_memory_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More noise than is kept: each design drops what one before had, and needs as much, so it is
    not given back."""
    trims: list[float] = []
    monkeypatch.setattr(observe, "seldom", Rarely(lambda: trims.append(time.monotonic()), 3600.0))
    for seed in range(10):  # the store is full after five designs
        measure(Config(seed=seed, n_seeds=1))
    assert len(trims) == 1
