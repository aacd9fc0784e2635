"""Handler of plotly.js: of `explorer serve`, and of any notebook server of the environment, as an
extension of it."""

from __future__ import annotations

import os
import re
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.utils import url_path_join
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from explorer import plotlyjs

PART = 64_000
"""Bytes that wait for a browser which does not read them."""


class PlotlyScript(RequestHandler):
    """Handler of plotly.js, which every page of this version needs: the same bytes for everyone,
    for a year."""

    @allow_unauthenticated
    async def get(self) -> None:
        """Sends it packed; every browser that can draw the page can unpack it."""
        packed = plotlyjs.part()
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Content-Encoding", "gzip")
        self.set_header("Content-Length", str(len(packed)))
        self.set_header("Cache-Control", "public, max-age=31536000, immutable")
        self.set_header("X-Content-Type-Options", "nosniff")
        for start in range(0, len(packed), PART):
            self.write(packed[start : start + PART])
            try:
                await self.flush()
            except StreamClosedError:  # nobody waits for the rest
                return


def handler(base: str) -> tuple[str, type[PlotlyScript]]:
    """The handler, and its address on a server below a base address."""
    return url_path_join(base, re.escape(plotlyjs.path())), PlotlyScript


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """This module as a Jupyter server extension, which `jupyter_server_config.d` enables in the
    whole environment."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Has a notebook server send plotly.js, and its kernels leave it to the server."""
    server.web_app.add_handlers(".*$", [handler(server.web_app.settings["base_url"])])
    os.environ[plotlyjs.SERVED] = "in JupyterLab"
