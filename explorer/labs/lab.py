"""`Lab`: one lab as a row of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from explorer.choices import Choices
from explorer.figures.axes import Plot
from explorer.figures.why import Why
from explorer.labs import Verdict

__all__ = ["Lab", "Plot", "Why"]


class Lab(NamedTuple):
    """One lab, as a row of data."""

    name: str
    """Of its notebook; the number is its place among the others."""
    title: str
    claim: str
    """The claim of `source`, in a sentence."""
    caveat: str
    """Limits of the claim, or an error in its popular version."""
    settings: type[Choices]
    run: Callable[..., Any]
    """From settings, `stop` and `progress` to the result."""
    verdict: Callable[[Any], Verdict]
    """From the result."""
    plots: tuple[Plot, ...]
    source: str
    """Of the claim: author, year, and its number at arXiv or kexue.fm."""
    grows: bool = False
    """Whether `run` takes a `look`, and hands it the result so far; see `labs.Look`."""
