"""Files that a person takes home from each panel: scripts, numbers, sources.

The functions that a panel gives are called at a press, and may refuse by a `ConfigError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from explorer.app.sentences import design_words, seed_words
from explorer.app.widgets.files import File
from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.export import snippet
from explorer.export.bibtex import TITLE, TOOL, bibliography
from explorer.export.module import torch_code
from explorer.profile import Profile
from explorer.sweeping.cell import origins
from explorer.sweeping.sweeps import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from explorer.app.map.plan import Job
    from explorer.app.roster import Entry

FORMULA = tuple("=+-@＝＋－＠")
"""Characters that start a formula in a spreadsheet, the wide forms too."""
PYTHON, TEXT, CSV, NETCDF = "text/x-python", "text/plain", "text/csv", "application/x-netcdf"


def sources(*records: Choices) -> str:
    """The papers of designs, recipes and settings, and others that are cited, each once."""
    return bibliography(*records, year=date.today().year)


def csv(frame: pd.DataFrame) -> str:
    """A table as CSV; a number that is missing is empty, a text is none that a spreadsheet would
    compute."""
    safe = frame.map(lambda cell: guarded(cell) if isinstance(cell, str) else cell)
    return str(safe.to_csv(index=False, lineterminator="\r\n", na_rep=""))


def guarded(text: str) -> str:
    """A text with an apostrophe before it where a spreadsheet would compute it.

    Example:
        >>> guarded("=1+1")
        "'=1+1"
    """
    computed = text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA)
    return f"'{text}" if computed else text


def explore_files(
    designs: Callable[[], tuple[Config, list[Entry]]],
    python: Callable[[], str],
    drawn: Callable[[], Iterable[tuple[str, Profile]]],
) -> Iterator[File]:
    """The files of the Explore panel.

    Args:
        designs: gives the design of the controls, and the pins.
        python: writes the script.
        drawn: gives the name of each design, and a profile of it.
    """

    def papers() -> str:
        config, pins = designs()
        return sources(config, *(pin.config for pin in pins))

    yield File(
        "Python", "A script that gives the numbers of this page.", "explore.py", PYTHON, python
    )
    yield File(
        "Torch module",
        "The current design as one file, which needs torch alone.",
        "transformer.py",
        PYTHON,
        lambda: torch_code(designs()[0]),
    )
    yield File(
        "Numbers (CSV)",
        "Every statistic of the designs on the charts, measured and predicted.",
        "explore.csv",
        CSV,
        lambda: profile_table(drawn()),
        shown=False,
    )
    yield File(
        "BibTeX", "This tool, and the papers of what the designs use.", "explore.bib", TEXT, papers
    )
    yield File(
        "Caption",
        "Designs, seeds and method of a picture for a paper.",
        "caption.txt",
        TEXT,
        lambda: caption(drawn()),
    )


def caption(drawn: Iterable[tuple[str, Profile]]) -> str:
    """Sentences for a caption of a paper's figure: the designs, what dots and lines are, and this
    tool.

    Args:
        drawn: the name of each design, and a profile of it.
    Raises:
        ConfigError: there are none.
    """
    profiles = list(drawn)
    if not profiles:
        raise ConfigError("numbers must be there for a caption; got none yet")
    designs = {name: design_words(profile.config) for name, profile in profiles if profile.config}
    subjects = "; ".join(f"{name}: {words}" for name, words in designs.items())
    sentences = [f"Transformers at initialization. {subjects}."]
    measured = [profile for _, profile in profiles if profile.origin == "measured"]
    if measured:
        seeds = " or ".join(sorted({seed_words(profile.seeds) for profile in measured}))
        sentences.append(
            f"Dots: means of one forward and one backward pass of a model for each of {seeds}, "
            "with weights and inputs drawn anew; bands from the smallest to the largest."
        )
    predicted = [profile for _, profile in profiles if profile.origin == "predicted"]
    if predicted:
        band = "; outlined: two of three draws" if any(row.scatter for row in predicted) else ""
        sentences.append(
            "Lines: mean-field theory, to first order in 1/width, without any fit" + band + "."
        )
    sentences.append(f"Computed with {TITLE} {version(TOOL)} (see BibTeX).")
    return "\n".join([*sentences, ""])


def profile_table(drawn: Iterable[tuple[str, Profile]]) -> str:
    """All numbers of some profiles as CSV, a number a row, with the design's name first.

    Raises:
        ConfigError: there are none.
    """
    import pandas as pd

    frames = [profile.frame().assign(design=name) for name, profile in drawn]
    if not frames:
        raise ConfigError("numbers must be there to be saved; got none yet")
    whole = pd.concat(frames, ignore_index=True)
    return csv(whole[["design", *whole.columns.drop("design")]])


def map_files(job: Callable[[], Job], sweep: Callable[[], Sweep]) -> Iterator[File]:
    """The files of the Map panel; the functions give what the map shows."""
    yield File(
        "Python", "A script that computes this map.", "map.py", PYTHON, lambda: map_script(job())
    )
    yield File(
        "Numbers (CSV)",
        "Every statistic of every cell, a cell a row.",
        "map.csv",
        CSV,
        lambda: csv(sweep().table().frame()),
        shown=False,
    )
    if find_spec("xarray"):  # of the extra `sweeps`
        # NetCDF 3, which everybody reads
        yield File(
            "Numbers (NetCDF)",
            "The same with labels and units, as xarray reads it.",
            "map.nc",
            NETCDF,
            lambda: bytes(sweep().dataset().to_netcdf(engine="scipy")),
            shown=False,
        )
    yield File(
        "BibTeX",
        "This tool, and the papers of what the design uses.",
        "map.bib",
        TEXT,
        lambda: sources(job().config),
    )


def map_script(job: Job) -> str:
    """The map as Python."""
    kind = origins()[job.origins[-1]].settings
    if kind is None:
        return snippet.sweep(job.config, job.fields, job.statistics, job.origins)
    settings = snippet.call(f"ex.{kind.__name__}", {"steps": job.steps})
    return snippet.sweep(job.config, job.fields, (), job.origins, settings)
