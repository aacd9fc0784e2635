"""The command `explorer probe`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from explorer.choices import ConfigError, opening
from explorer.command import FAILED, Add


def add_commands(add: Add) -> None:
    """Adds the command to the parser of `explorer`."""
    command = add(
        "probe",
        help="measure a model of your own",
        description="Measures a model of your own and prints its profile as JSON on standard output.",
        epilog="The function takes nothing and returns (model, batch) or (model, batch, loss), as ex.probe "
        "takes them. Modules of the current folder are found.",
    )
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


def _probe(choices: argparse.Namespace) -> int:
    """Runs the command; returns its exit code, 1 where the model departs from the expected
    design."""
    from explorer_models.expecting import expectation, verdict
    from explorer_models.model import make, named_error
    from explorer_models.probe import probe

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
        raise ConfigError(f"model must run on its batch; it raised {named_error(error)}") from error
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
    """Writes a file; ConfigError with the reason where that cannot be done."""
    with opening(path, "file must be one that can be written"):
        path.write_text(text, encoding="utf-8")
