"""What it costs, measured: `make bench`. Never part of the tests, for a machine may be busy."""

import os

os.environ["OMP_WAIT_POLICY"] = (
    "PASSIVE"  # as in a worker of `explorer.tasks`; torch reads it when it is imported
)
