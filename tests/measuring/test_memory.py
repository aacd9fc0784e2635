"""Memory after a large design: a process of its own measures three, as a visitor's kernel does over the hours."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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

large = Config(n_layers=144, d_model=64, n_ctx=512, n_seeds=1, residual_attention="scores")
told = [resident(Config()), resident(large), resident(Config(n_layers=11))]
print(json.dumps([*told, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides what a process keeps")
def test_memory_comes_back_after_a_large_design() -> None:
    """To 1.5 × a fresh page's, and no cache keeps what only the large one needed."""
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    fresh, _, after, peak = json.loads(done.stdout)
    assert peak - fresh > 600e6, f"{peak / 1e6:.0f} MB were taken: not a large design"
    assert after < 1.5 * fresh, f"{after / 1e6:.0f} MB after it, {fresh / 1e6:.0f} MB before"


CROWD = """
import json, resource
from explorer.config import Config
from explorer.measuring import measure

def faults(seed):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    measure(Config(seed=seed, n_seeds=1))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(json.dumps([faults(seed) for seed in range(18)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides what a process keeps")
def test_designs_that_follow_each_other_use_the_memory_of_those_before() -> None:
    """More noise than is kept: each design drops what one before had, and needs as much.

    Given back at once, all memory of a measurement came back page by page: some 28,000 of 4 kB.
    """
    done = subprocess.run([sys.executable, "-c", CROWD], check=True, capture_output=True, text=True)
    faults = sorted(json.loads(done.stdout)[8:])  # the store is full after five designs
    assert faults[len(faults) // 2] < 14_000, f"page faults of a measurement: {faults}"
