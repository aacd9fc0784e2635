"""What it costs, measured: `make bench`. Never part of the tests, for a machine may be busy."""

import explorer  # noqa: F401 - before torch, which else lets its threads spin beside what is measured
