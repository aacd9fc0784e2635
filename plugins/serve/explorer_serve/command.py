"""The commands `explorer serve` and `explorer lab`."""

from __future__ import annotations

import argparse
import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import fields

from explorer.command import Add
from explorer.translation import translated
from explorer_serve.start import DRAIN, PAGE_NOTEBOOK, PREHEATED, Options, lab, serve

MOST_PREHEATED = 64


def add_commands(add: Add) -> None:
    """Adds both commands to the parser of `explorer`."""
    page = add(
        "serve",
        help=translated("show the page on this machine"),
        description=translated("Serves the page with Voilà until Ctrl-C."),
    )
    page.add_argument(
        "notebook",
        nargs="?",
        default=PAGE_NOTEBOOK,
        help=translated("a notebook, such as lessons/01_drawing_weights (default: the whole page)"),
    )
    page.add_argument(
        "--preheat",
        metavar="N",
        type=_whole(0, MOST_PREHEATED),
        default=PREHEATED,
        help=translated(
            "kernels kept ready for the next visitors, about 0.1 GB each; 0 starts one when somebody comes "
            "(default: %(default)s)"
        ),
    )
    page.add_argument(
        "--max-pages",
        metavar="N",
        type=_whole(1),
        default=None,
        help=translated(
            "pages open at a time, about 0.2 GB each (default: as many as memory holds)"
        ),
    )
    page.add_argument(
        "--base-url",
        metavar="/PATH/",
        type=_base,
        default="/",
        help=translated("path below which a proxy passes requests on (default: %(default)s)"),
    )
    page.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help=translated(
            "name by which a proxy or a browser may call this server, besides this machine's own names "
            "and addresses; * for any"
        ),
    )
    page.add_argument(
        "--metrics-from",
        metavar="NETWORK",
        type=_network,
        action="append",
        default=[],
        help=translated(
            "network, such as 10.0.0.0/8, that may read /metrics, besides this machine"
        ),
    )
    page.add_argument(
        "--drain-seconds",
        metavar="N",
        type=float,
        default=DRAIN,
        help=translated("seconds for which open pages go on after SIGTERM (default: %(default)s)"),
    )
    page.add_argument(
        "--public",
        action="store_true",
        help=translated(
            "limits for visitors whom nobody knows: memory of a page, memory and time of a design, "
            "a quarter of an hour for an idle page, 5,000 steps and ten minutes for a race"
        ),
    )
    page.add_argument(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        default="",
        help=translated("Dask cluster that computes in place of this machine's processes"),
    )
    _add_address(
        page,
        8866,
        lambda args: serve(
            Options(**{field.name: getattr(args, field.name) for field in fields(Options)})
        ),
    )

    books = add(
        "lab",
        help=translated("open the notebooks in JupyterLab"),
        description=translated("Opens the notebooks in JupyterLab until Ctrl-C."),
        epilog=translated(
            "Arguments after -- are passed to JupyterLab: explorer lab -- --allow-root"
        ),
    )
    _add_address(
        books,
        8888,
        lambda args: lab(args.host, args.port, browser=args.browser, options=args.options),
    )
    books.add_argument(
        "options", nargs="*", metavar="-- OPTION", help=translated("options of JupyterLab's own")
    )


def _add_address(
    command: argparse.ArgumentParser, port: int, run: Callable[[argparse.Namespace], None]
) -> None:
    """Adds the options of a command that serves, and what it runs with them."""
    command.set_defaults(run=run)
    command.add_argument(
        "--port",
        type=_whole(1, 65535),
        default=port,
        help=translated("port to listen on (default: %(default)s)"),
    )
    command.add_argument(
        "--host",
        default="localhost",
        help=translated("address to listen on; 0.0.0.0 lets others in (default: %(default)s)"),
    )
    command.add_argument(
        "--no-browser",
        dest="browser",
        action="store_false",
        help=translated("do not open a browser"),
    )


def _whole(low: int, high: float = math.inf) -> Callable[[str], int]:
    """A function that reads a whole number between two bounds."""
    message = "must be a whole number of at least {low}; got {text!r}"
    if high < math.inf:
        message = "must be a whole number between {low} and {high}; got {text!r}"

    def number(text: str) -> int:
        if not (text.isdecimal() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(translated(message, low=low, high=high, text=text))
        return int(text)

    return number


def _base(text: str) -> str:
    if not re.fullmatch(r"/([\w.~-]+/)*", text):
        raise argparse.ArgumentTypeError(
            translated("must begin and end with / and be a plain path; got {text!r}", text=text)
        )
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            translated("must be a network such as 10.0.0.0/8; got {text!r}", text=text)
        ) from None
