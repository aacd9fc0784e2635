"""Downloads of the Map panel: its numbers, and the call that makes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING

from explorer.app.explore.home import CSV, PYTHON, TEXT
from explorer.app.map.plan import Job
from explorer.app.widgets.takehome import File
from explorer.export import snippet
from explorer.export.bibtex import bibliography

if TYPE_CHECKING:
    import xarray as xr

NETCDF = "application/x-netcdf"


def files(job: Callable[[], Job], numbers: Callable[[], xr.Dataset]) -> Iterator[File]:
    """The files of the panel; the functions give what the map shows, or refuse."""
    yield File("Python", "A script that computes this map.", "map.py", PYTHON, lambda: script(job()))
    yield File("Numbers (CSV)", "Every statistic of every cell, a cell a row.", "map.csv", CSV,
               lambda: table(numbers()), shown=False)
    yield File("Numbers (NetCDF)", "The same with labels and units, as xarray reads it.", "map.nc", NETCDF,
               lambda: netcdf(numbers()), shown=False)
    yield File("BibTeX", "This tool, and the papers of what the design uses.", "map.bib", TEXT,
               lambda: bibliography(job().config, year=date.today().year))


def script(job: Job) -> str:
    """The map as Python."""
    trained = "trained" in job.origins
    return snippet.sweep(job.config, job.fields, () if trained else job.statistics, job.origins,
                         job.steps if trained else None)


def table(dataset: xr.Dataset) -> str:
    """A cell a row; what is missing is empty."""
    frame = dataset.to_dataframe().reset_index()
    return str(frame.to_csv(index=False, lineterminator="\r\n", na_rep=""))


def netcdf(dataset: xr.Dataset) -> bytes:
    """A file in NetCDF 3, which scipy writes and everybody reads."""
    return bytes(dataset.to_netcdf(engine="scipy"))
