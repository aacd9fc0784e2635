"""What all tests share: hypothesis draws the same examples on every machine, and no test waits for a clock."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run beside each other; torch reads it when it is imported
# So do the processes that compute for a page, a server or a notebook, each of which takes two seconds of a processor to
# start. Tests that are about several have them.
os.environ.setdefault("EXPLORER_PROCESSES", "1")

settings.register_profile(
    "explorer", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("explorer")
