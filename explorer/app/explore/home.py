"""Downloads of the Explore panel: its designs as Python, as torch, as numbers, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date

from explorer.app.explore.pins import Pin
from explorer.app.widgets.takehome import File
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.export import snippet
from explorer.export.bibtex import bibliography
from explorer.export.module import torch_code
from explorer.figures.data import guarded
from explorer.profile import Profile

PYTHON, TEXT, CSV = "text/x-python", "text/plain", "text/csv"


def files(designs: Callable[[], tuple[Config, list[Pin]]], python: Callable[[], str],
          drawn: Callable[[], Iterable[tuple[str, Profile]]]) -> Iterator[File]:
    """The files of the panel.

    Args:
        designs: gives the design of the controls, and the pins.
        python: writes the script.
        drawn: gives the name of each design, and a profile of it.
    """
    yield File("Python", "A script that gives the numbers of this page.", "explore.py", PYTHON, python)
    yield File("Torch module", "The current design as one file, which needs torch alone.", "transformer.py", PYTHON,
               lambda: torch_code(designs()[0]))
    yield File("Numbers (CSV)", "Every statistic of the designs on the charts, measured and predicted.", "explore.csv",
               CSV, lambda: numbers(drawn()), shown=False)
    yield File("BibTeX", "This tool, and the papers of what the designs use.", "explore.bib", TEXT,
               lambda: sources(*designs()))


def sources(config: Config, pins: Iterable[Pin]) -> str:
    """The sources of every design, each once."""
    return bibliography(*dict.fromkeys((config, *(pin.config for pin in pins))), year=date.today().year)


def script(config: Config, pins: Iterable[Pin], statistic: str, pattern_of: tuple[int, int]) -> str:
    """The script of the panel."""
    return snippet.explore(config, {pin.name: pin.config for pin in pins}, statistic, pattern_of)


def numbers(drawn: Iterable[tuple[str, Profile]]) -> str:
    """All numbers of some profiles as CSV, a number a row, with the design's name first.

    Raises:
        ConfigError: there are none.
    """
    import pandas as pd

    frames = [profile.frame().assign(design=guarded(name)) for name, profile in drawn]
    if not frames:
        raise ConfigError("numbers must be there to be saved; got none yet")
    whole = pd.concat(frames, ignore_index=True)
    return whole[["design", *whole.columns.drop("design")]].to_csv(index=False, lineterminator="\r\n", na_rep="")
