"""What it costs, measured: `make bench`. Never part of the tests, for a machine may be busy."""

import os

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as in a worker, see `explorer.tasks.pool`; torch reads it when it is imported
