"""A module a row: `prepare(subject)` gives a function that runs one pass, forward and backward, and
returns values."""
