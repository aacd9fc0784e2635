"""plotly.js, packed: the part that draws the page's charts, and all of it for figures of a person's
own.

A served page asks its server for the part while Python starts; elsewhere all of it travels with the
widgets. Neither needs the rest of plotly for that.

The part is `plotly.js-cartesian-dist-min`, as its authors publish it, under their licence beside
it. Where the tested version of plotly brings another plotly.js, this file is replaced by the one of
that version."""

from __future__ import annotations

import gzip
import hashlib
import pkgutil
from functools import cache

SERVED = "EXPLORER_SERVES_PLOTLY"
"""Set in the environment of kernels whose server has plotly.js for their pages, at `path`."""


def _data(package: str, path: str) -> bytes:
    """A file of a package.

    Raises:
        FileNotFoundError: the package has moved it.
    """
    data = pkgutil.get_data(package, path)
    if data is None:
        raise FileNotFoundError(f"{package} has no {path}")
    return data


@cache
def packed() -> bytes:
    """All of the script, as `plotly.offline.get_plotlyjs` gives it, gzipped; the same bytes each
    time."""
    return gzip.compress(_data("plotly", "package_data/plotly.min.js"), compresslevel=6, mtime=0)


@cache
def part() -> bytes:
    """The script without traces in space and on maps, gzipped: a third of the bytes and of the time
    to evaluate it."""
    return _data(__name__, "plotly-cartesian.min.js.gz")


@cache
def digest() -> str:
    """Twelve hexadecimal digits that another part would not have."""
    return hashlib.sha256(part()).hexdigest()[:12]


def path() -> str:
    """Path of the part on a server, below its address; another version has another path, as
    browsers keep it."""
    return f"voila/plotly-{digest()}.js"
