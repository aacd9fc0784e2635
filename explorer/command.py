"""The arguments of the `explorer` command: show the page, open the notebooks, or measure a config
or a model."""

from __future__ import annotations

import argparse
import ipaddress
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

from explorer.choices import opening
from explorer.config import Config, ConfigError
from explorer.serve import DRAIN, PAGE_NOTEBOOK, PREHEATED, Options, ServeError, lab, serve

MOST_PREHEATED = 64
FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: the command failed, or a model is not as expected; wrong arguments (also argparse's);
Ctrl-C."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; what went wrong is one line on standard error."""
    choices = _parser().parse_args(arguments)
    try:
        code: int | None = choices.run(choices)
    except (ServeError, ConfigError) as error:
        sys.stderr.write(f"explorer: {error}\n")
        return FAILED if isinstance(error, ServeError) else REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0


class _Version(argparse.Action):
    """Looks the version up when it is asked for: a checkout that is not installed has none, and
    still runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"explorer {version('transformer-signal-explorer')}\n")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="explorer",
        description="Shows the signal inside a Transformer, measured and predicted.",
        epilog="explorer COMMAND --help describes each command.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the installed version and exit"
    )
    add = parser.add_subparsers(metavar="COMMAND", required=True).add_parser

    page = add(
        "serve",
        help="show the page on this machine",
        description="Serves the page with Voilà until Ctrl-C.",
    )
    page.add_argument(
        "notebook",
        nargs="?",
        default=PAGE_NOTEBOOK,
        help="a notebook, such as lessons/01_drawing_weights (default: the whole page)",
    )
    page.add_argument(
        "--preheat",
        metavar="N",
        type=_whole(0, MOST_PREHEATED),
        default=PREHEATED,
        help="kernels kept ready for the next visitors, about 0.1 GB each; 0 starts one when somebody comes "
        "(default: %(default)s)",
    )
    page.add_argument(
        "--max-pages",
        metavar="N",
        type=_whole(1),
        default=None,
        help="pages open at a time, about 0.2 GB each (default: as many as memory holds)",
    )
    page.add_argument(
        "--base-url",
        metavar="/PATH/",
        type=_base,
        default="/",
        help="path below which a proxy passes requests on (default: %(default)s)",
    )
    page.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="name by which a proxy or a browser may call this server, besides this machine's own names "
        "and addresses; * for any",
    )
    page.add_argument(
        "--metrics-from",
        metavar="NETWORK",
        type=_network,
        action="append",
        default=[],
        help="network, such as 10.0.0.0/8, that may read /metrics, besides this machine",
    )
    page.add_argument(
        "--drain-seconds",
        metavar="N",
        type=float,
        default=DRAIN,
        help="seconds for which open pages go on after SIGTERM (default: %(default)s)",
    )
    page.add_argument(
        "--public",
        action="store_true",
        help="limits for visitors whom nobody knows: memory of a page, memory and time of a design, "
        "a quarter of an hour for an idle page, 5,000 steps and ten minutes for a race",
    )
    page.add_argument(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        default="",
        help="Dask cluster that computes in place of this machine's processes",
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
        help="open the notebooks in JupyterLab",
        description="Opens the notebooks in JupyterLab until Ctrl-C.",
        epilog="Arguments after -- are passed to JupyterLab: explorer lab -- --allow-root",
    )
    _add_address(
        books,
        8888,
        lambda args: lab(args.host, args.port, browser=args.browser, options=args.options),
    )
    books.add_argument(
        "options", nargs="*", metavar="-- OPTION", help="options of JupyterLab's own"
    )

    script = add(
        "measure",
        help="measure one config and print its profile as JSON",
        description="Measures one config and prints its profile as JSON on standard output.",
        epilog="A config is a JSON object of fields; those left out keep their defaults: "
        """echo '{"n_layers": 24, "norm_placement": "post"}' | explorer measure -""",
    )
    script.add_argument(
        "config", metavar="CONFIG.json", help="the file with the config; - reads standard input"
    )
    script.set_defaults(run=_measure)
    _add_probe(
        add(
            "probe",
            help="measure a model of your own",
            description="Measures a model of your own and prints its profile as JSON on standard output.",
            epilog="The function takes nothing and returns (model, batch) or (model, batch, loss), as ex.probe "
            "takes them. Modules of the current folder are found.",
        )
    )
    return parser


def _add_probe(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of a measurement of a person's own model."""
    command.add_argument(
        "factory", metavar="package.module:function", help="the function that makes model and batch"
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--html",
        metavar="PAGE.html",
        type=Path,
        help="write a page with verdict and figures instead",
    )
    where.add_argument(
        "--json", metavar="PROFILE.json", type=Path, help="write the JSON to a file instead"
    )
    command.add_argument(
        "--expect",
        metavar="DESIGN",
        help="a preset, such as llama3, or a file with a config or a profile: say on standard output "
        "whether the model starts so, and exit with 1 if it does not",
    )
    command.set_defaults(run=_probe)


def _add_address(
    command: argparse.ArgumentParser, port: int, run: Callable[[argparse.Namespace], None]
) -> None:
    """Adds the options of a command that serves, and what it runs with them."""
    command.set_defaults(run=run)
    command.add_argument(
        "--port",
        type=_whole(1, 65535),
        default=port,
        help="port to listen on (default: %(default)s)",
    )
    command.add_argument(
        "--host",
        default="localhost",
        help="address to listen on; 0.0.0.0 lets others in (default: %(default)s)",
    )
    command.add_argument(
        "--no-browser", dest="browser", action="store_false", help="do not open a browser"
    )


def _whole(low: int, high: float = math.inf) -> Callable[[str], int]:
    """A function that reads a whole number between two bounds."""
    rule = f"between {low} and {high}" if high < math.inf else f"of at least {low}"

    def number(text: str) -> int:
        if not (text.isdecimal() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"must be a whole number {rule}; got {text!r}")
        return int(text)

    return number


def _base(text: str) -> str:
    if not re.fullmatch(r"/([\w.~-]+/)*", text):
        raise argparse.ArgumentTypeError(
            f"must begin and end with / and be a plain path; got {text!r}"
        )
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a network such as 10.0.0.0/8; got {text!r}"
        ) from None


def _measure(choices: argparse.Namespace) -> None:
    config = Config.from_json(_read(choices.config))
    from explorer.measuring import measure  # imports torch, which no other command needs

    sys.stdout.write(measure(config).to_json() + "\n")


def _probe(choices: argparse.Namespace) -> int:
    from explorer.own.expecting import expectation, verdict
    from explorer.own.model import make
    from explorer.own.probe import probe

    judged, expected = None, None if choices.expect is None else expectation(choices.expect)
    try:
        made = make(choices.factory)
        if expected is None:
            profile = probe(*made)
        else:
            judged = verdict(choices.expect, expected, *made)
            profile = judged.profile
    except (TypeError, ValueError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"model must run on its batch; it raised {message}") from error
    if choices.html is not None:
        from explorer.figures.pages import page

        _write(choices.html, page(profile))
    elif choices.json is not None:
        _write(choices.json, profile.to_json() + "\n")
    elif judged is None:
        sys.stdout.write(profile.to_json() + "\n")
    if judged is not None:
        sys.stdout.write(f"{judged}\n")
    return FAILED if judged is not None and not judged.agrees else 0


def _write(path: Path, text: str) -> None:
    with opening(path, "file must be one that can be written"):
        path.write_text(text, encoding="utf-8")


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    with opening(path, "config must be a file that can be read"):
        return Path(path).read_bytes()
