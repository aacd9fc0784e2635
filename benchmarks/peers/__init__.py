"""Ways to read three statistics of one Transformer, timed beside each other: `make peers`."""
