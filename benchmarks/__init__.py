"""What it costs, measured: `make bench`. Never part of the tests, for a machine may be busy."""
