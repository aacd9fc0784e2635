"""The `explorer` command. It says that it starts before it imports what it needs, which takes
seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SERVERS = ("serve", "lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
        arguments: the words after `explorer`; those of this process where there are none given.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    asks_for_help = "-h" in arguments or "--help" in arguments
    if arguments and arguments[0] in SERVERS and not asks_for_help:
        sys.stdout.write("Starting …\n")
        sys.stdout.flush()
    # pydantic, scipy and Jupyter's packages, compiled in a new environment
    from explorer.command import (
        run,
    )

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
