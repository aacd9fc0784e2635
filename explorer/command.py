"""The `explorer` command: measures a config; other commands come with plug-ins."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from explorer import plugins
from explorer.choices import ConfigError, opening
from explorer.config import Config
from explorer.translation import of_environment, speaking, translated

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: the command failed, or a model is not as expected; wrong arguments (also argparse's);
Ctrl-C."""
Add = Callable[..., argparse.ArgumentParser]
"""`add_parser` of argparse: a plug-in's commands are added by a function that takes it. A command's
parser has the default `run`, a function of the parsed arguments that may return an exit code."""


class CommandError(RuntimeError):
    """A command could not do its work; the message is one line that says why."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; what went wrong is one line on standard error, in
    the language of the environment.

    Raises:
        SystemExit: wrong arguments, or help was asked for.
    """
    with speaking(of_environment()):
        choices = _parser().parse_args(arguments)
        try:
            code: int | None = choices.run(choices)
        except (CommandError, ConfigError) as error:
            sys.stderr.write(f"explorer: {error}\n")
            return FAILED if isinstance(error, CommandError) else REFUSED
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
        description=translated("Shows the signal inside a Transformer, measured and predicted."),
        epilog=translated("explorer COMMAND --help describes each command."),
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help=translated("show the installed version and exit"),
    )
    add = parser.add_subparsers(metavar="COMMAND", required=True).add_parser

    script = add(
        "measure",
        help=translated("measure one config and print its profile as JSON"),
        description=translated(
            "Measures one config and prints its profile as JSON on standard output."
        ),
        epilog=translated(
            "A config is a JSON object of fields; those left out keep their defaults: "
            """echo '{"n_layers": 24, "norm_placement": "post"}' | explorer measure -"""
        ),
    )
    script.add_argument(
        "config",
        metavar="CONFIG.json",
        help=translated("the file with the config; - reads standard input"),
    )
    script.set_defaults(run=_measure)
    for plugin in plugins.plugins():
        if plugin.commands:
            plugins.load(plugin.commands)(add)
    return parser


def _measure(choices: argparse.Namespace) -> None:
    config = Config.from_json(_read(choices.config))
    from explorer.measuring import measure  # imports torch, which help does not need

    sys.stdout.write(measure(config).to_json() + "\n")


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    with opening(path, "config must be a file that can be read"):
        return Path(path).read_bytes()
