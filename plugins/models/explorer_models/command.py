"""The command `explorer probe`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.choices import ConfigError, opening
from explorer.command import FAILED, Add
from explorer.translation import speaking, translated

if TYPE_CHECKING:
    from explorer_models.expecting import Verdict


def add_commands(add: Add) -> None:
    """Adds the command to the parser of `explorer`."""
    command = add(
        "probe",
        help=translated("measure a model of your own"),
        description=translated(
            "Measures a model of your own and prints its profile as JSON on standard output."
        ),
        epilog=translated(
            "The function takes nothing and returns (model, batch) or (model, batch, loss), as ex.probe "
            "takes them. Modules of the current folder are found."
        ),
    )
    command.add_argument(
        "factory",
        metavar="package.module:function",
        help=translated("the function that makes model and batch"),
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--html",
        metavar="PAGE.html",
        type=Path,
        help=translated("write a page with verdict and figures instead"),
    )
    where.add_argument(
        "--json",
        metavar="PROFILE.json",
        type=Path,
        help=translated("write the JSON to a file instead"),
    )
    command.add_argument(
        "--expect",
        metavar="START",
        help=translated(
            "a preset, such as llama3; a start that --write has stored; a file with a config; or the "
            "word class, for what the model's own class says: say on standard output whether the model "
            "starts so, and exit with 1 if it does not"
        ),
    )
    command.add_argument(
        "--outside",
        action="store_true",
        help=translated(
            "beside --expect: the tests from outside, such as that no output depends on later tokens"
        ),
    )
    command.add_argument(
        "--write",
        metavar="START.toml",
        type=Path,
        help=translated("store how the model starts, for review"),
    )
    command.add_argument(
        "--report",
        metavar="REPORT.json",
        type=Path,
        help=translated(
            "write the departures from --expect as JSON, and beside it their chart as SVG"
        ),
    )
    command.add_argument(
        "--github",
        action="store_true",
        help=translated(
            "print departures as annotations of a GitHub workflow, and add to its summary"
        ),
    )
    command.set_defaults(run=_probe)


def _probe(choices: argparse.Namespace) -> int:
    """Runs the command; returns its exit code, 1 where the model departs from what is expected."""
    from explorer_models.expecting import expectation, verdict
    from explorer_models.model import make, named_error
    from explorer_models.probe import probed
    from explorer_models.starts import Start, refuse_not_finite

    if choices.expect is None and (choices.report or choices.github or choices.outside):
        raise ConfigError("report, github and outside need --expect, which they are about")
    judged, expected = None, None if choices.expect is None else expectation(choices.expect)
    _refuse_one_file_twice(choices)
    try:
        made = make(choices.factory)
        if choices.write is not None:
            refuse_not_finite(made[0])
        if choices.expect is None:
            profile, stack = probed(*made)
            start = Start.of(made[0], profile, stack) if choices.write else None
        else:
            judged = verdict(choices.expect, expected, *made, outside=choices.outside)
            profile, start = judged.profile, judged.start
    except (TypeError, ValueError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except Exception as error:
        message = translated(
            "model must run on its batch; it raised {error}", error=named_error(error)
        )
        raise ConfigError(message) from error
    if choices.html is not None:
        from explorer.figures.pages import page

        _write(choices.html, page(profile))
    elif choices.json is not None:
        _write(choices.json, profile.to_json() + "\n")
    elif judged is None and choices.write is None:
        sys.stdout.write(profile.to_json() + "\n")
    if choices.write is not None:
        before = choices.write.exists()
        _write(choices.write, str(start))
        if before:
            sys.stdout.write(f"wrote {choices.write}, which was there before\n")
    return 0 if judged is None else _told(judged, choices)


def _refuse_one_file_twice(choices: argparse.Namespace) -> None:
    """Refuses files that would overwrite each other, or the file with the expectation.

    Raises:
        ConfigError: two options name one file, or the report's name is no JSON's.
    """
    report = choices.report
    if report and report.suffix != ".json":
        raise ConfigError(f"report must end with .json; got {str(report)!r}")
    files = {
        "expect": choices.expect,
        "html": choices.html,
        "json": choices.json,
        "write": choices.write,
        "report": report,
        "the report's chart": report and report.with_suffix(".svg"),
    }
    options: dict[str, str] = {}
    for option, file in files.items():
        if file is not None:
            with opening(file, "file must be one that can be written"):
                path = os.path.realpath(file)
            if other := options.get(path):
                raise ConfigError(f"{other} and {option} must be two files; got {str(file)!r}")
            options[path] = option


@speaking("en")  # a verdict has no translation
def _told(judged: Verdict, choices: argparse.Namespace) -> int:
    """Prints and writes a verdict as the options say; returns the exit code."""
    from explorer_models.reporting import chart, report, summary, workflow_commands

    sys.stdout.write(f"{judged}\n")
    if choices.report is not None:
        _write(choices.report, json.dumps(report(judged), indent=2) + "\n")
        _write(choices.report.with_suffix(".svg"), chart(judged))
    if choices.github:
        sys.stdout.writelines(f"{line}\n" for line in workflow_commands(judged))
        if path := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(summary(judged))
    return 0 if judged.agrees else FAILED


def _write(path: Path, text: str) -> None:
    """Writes a file; ConfigError with the reason where that cannot be done."""
    with opening(path, "file must be one that can be written"):
        path.write_text(text, encoding="utf-8")
