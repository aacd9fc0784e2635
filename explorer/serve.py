"""Starts what shows the page: standalone Voilà for those who look, JupyterLab for those who write.

Both run in this process until Ctrl-C. The notebooks, and the template that keeps Voilà from loading anything from
another host, come with the package: from the checkout in an editable install, else from inside the wheel.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from explorer import plotlyjs

PACKAGE = Path(__file__).parent
PAGE = "explorer.ipynb"
PREHEATED = 1
"""Kernels that wait for a visitor. Each has imported torch and measured the first design, and keeps its memory."""
SETTINGS = PACKAGE / "jupyter"
"""`voila.json`, `labconfig/` and the template, found by Jupyter when this folder is on its paths. What they are for:

- A visitor chooses nothing on the server: no template, no theme, no file beside the page, no traceback.
- Of the installed JupyterLab extensions only those that draw widgets are sent.
- What a visitor may send and is sent, and how long a kernel lives without its page: `explorer.visits`, and SECURITY.md.
- One kernel a visitor. When it dies it is not replaced, for the new one would know nothing of the page. The page says
  so (`page.js` of the template).
- JupyterLab asks its makers for news, updates and extensions, and a person for leave to do so; here it asks nobody.
- Notebook servers, too, send plotly.js, which a browser then keeps (`jupyter_server_config.d/`, installed where any of
  the environment looks).
"""


class ServeError(RuntimeError):
    """Nothing can be served; the message is one line that says why."""


def notebooks() -> Path:
    """The folder with the notebooks: inside an installed wheel, beside the package in a checkout.

    Raises:
        ServeError: the page's notebook is in neither place.
    """
    places = (PACKAGE / "notebooks", PACKAGE.parent / "notebooks")
    for place in places:
        if (place / PAGE).is_file():
            return place
    raise ServeError(f"the notebook {PAGE} must be in {places[0]} or {places[1]}; it is in neither")


def serve(host: str, port: int, *, browser: bool, notebook: str = PAGE, preheat: int = PREHEATED) -> None:
    """Serves a notebook as a page, with standalone Voilà, until it is interrupted.

    Args:
        preheat: kernels that have run the notebook before their visitor comes; 0 for none.
    Raises:
        ServeError: the port is taken or not allowed, the host is not this machine's, or the notebook is missing.
    """
    page = _page(notebook)
    _must_be_free(host, port)
    _prepare()
    os.environ[plotlyjs.SERVED] = plotlyjs.TO_VISITORS
    threading.Thread(target=plotlyjs.packed, daemon=True).start()  # before the first visitor asks
    first = _first_picture() if notebook == PAGE else None
    from tornado.ioloop import IOLoop

    from explorer.visits import Server

    logging.getLogger("tornado.general").setLevel(logging.ERROR)  # else it comments on Jupyter's own ping settings
    app = Server(config_file_paths=[str(SETTINGS)])
    pool = [f"--preheat_kernel={preheat > 0}", f"--pool_size={preheat}"]
    app.initialize([str(page), f"--Voila.ip={host}", f"--port={port}", *pool, *([] if browser else ["--no-browser"])])
    picture = first.communicate()[0] if first else ""
    app.voila_configuration.config.VoilaConfiguration.resources = {"first_picture": picture, "plotly": plotlyjs.path()}
    address = f"http://{_reachable(host)}:{port}/"
    loop = IOLoop.current()
    signal.signal(signal.SIGINT, lambda *_: loop.add_callback_from_signal(loop.stop))  # nothing breaks off halfway
    loop.add_callback(print, f"Transformer Signal Explorer is at {address} (Ctrl-C stops it)", flush=True)
    app.start()


def _first_picture() -> subprocess.Popen[str]:
    """Begins to draw what visitors see while Python starts; beside the server's own start, and outside its memory."""
    return subprocess.Popen([sys.executable, "-m", "explorer.app.first"], stdout=subprocess.PIPE, text=True)


def _page(name: str) -> Path:
    """One of our notebooks by its name, with or without its ending."""
    pages = {path.stem: path for path in sorted(notebooks().glob("*.ipynb"))}
    if name.removesuffix(".ipynb") not in pages:
        raise ServeError(f"the notebook must be one of {', '.join(pages)}; got {name!r}")
    return pages[name.removesuffix(".ipynb")]


def lab(host: str, port: int, *, browser: bool, options: Sequence[str] = ()) -> None:
    """Opens the notebooks in JupyterLab until it is interrupted; `options` are JupyterLab's own.

    Raises:
        ServeError: as `serve` does.
    """
    folder = notebooks()
    _must_be_free(host, port)
    _prepare()
    from jupyterlab.labapp import LabApp

    where = [f"--ip={host}", f"--port={port}", *([] if browser else ["--no-browser"]),
             "--ServerApp.kernel_websocket_connection_class=explorer.visits.Prompt"]
    os.chdir(folder)  # JupyterLab shows where it stands, unless `options` say otherwise
    LabApp.launch_instance([*where, f"--LabApp.default_url=/lab/tree/{PAGE}", *options])


def _must_be_free(host: str, port: int) -> None:
    """Refuses an address that the server could not listen on, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:  # taken, not allowed, or not ours; the socket module repeats the address after the reason
        reason = str(error.strerror).partition(" (while ")[0]
        raise ServeError(f"cannot serve on {host} port {port}: {reason}") from None


def _prepare() -> None:
    """Puts our settings and template on Jupyter's paths, whichever way the package was installed.

    And has threads share what they have freed: with a store each, as glibc gives them, a kernel grew by 1 MB a move.
    """
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    for variable in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH"):
        known = os.environ.get(variable)
        os.environ[variable] = os.pathsep.join([str(SETTINGS), *([known] if known else [])])


def _reachable(host: str) -> str:
    """The host as it stands in an address that this machine's browser can open."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        return "localhost"
    return f"[{host}]" if ":" in host else host
