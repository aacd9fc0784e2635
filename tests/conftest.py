"""What all tests share: hypothesis draws the same examples on every machine, and no test waits for a clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

import explorer  # before anything imports torch: it tells OpenMP not to spin

assert explorer.__doc__

settings.register_profile(
    "explorer", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("explorer")
