"""plotly.js as the installed plotly carries it, packed, and a name that changes with it.

A served page asks its server for it while Python starts; elsewhere it travels with the widgets. Neither needs the rest
of plotly for that.
"""

from __future__ import annotations

import gzip
import hashlib
import pkgutil
from functools import cache

SERVED = "EXPLORER_SERVES_PLOTLY"
"""Set in the environment of kernels whose server has plotly.js for their pages, at `path`."""


@cache
def _source() -> bytes:
    """The script, as `plotly.offline.get_plotlyjs` gives it.

    Raises:
        FileNotFoundError: plotly has moved it.
    """
    source = pkgutil.get_data("plotly", "package_data/plotly.min.js")
    if source is None:
        raise FileNotFoundError("plotly has no package_data/plotly.min.js")
    return source


@cache
def packed() -> bytes:
    """The script, gzipped; the same bytes each time."""
    return gzip.compress(_source(), compresslevel=6, mtime=0)


@cache
def digest() -> str:
    """Twelve hexadecimal digits that another script would not have."""
    return hashlib.sha256(_source()).hexdigest()[:12]


def path() -> str:
    """Path of plotly.js on a server, below its address; another version has another path, as browsers keep it."""
    return f"voila/plotly-{digest()}.js"
