"""Names the test files that mirror what has changed, for `make quick`.

Changed is what `git` finds different from the last commit, or does not know yet; where there is no
such file, what the last commit changed. A test file mirrors a module if it has the module's name.
Where no test file has it, those that import the module do; and where none does, those of the
module's room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("test_goldens", "test_house", "test_words", "test_architecture")
"""What any change may break."""
NOT_QUICK = (
    "browser",
    "models/test_processes",
    "test_packaging",
    "test_lessons",
    "test_live",
    "test_main",
)
"""Start servers, browsers or many processes: `make check` runs them."""


def git(*words: str) -> list[Path]:
    """Paths that a command of git lists."""
    told = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(line) for line in told.stdout.splitlines()]


def changed() -> list[Path]:
    """Files that differ from the last commit, or else from the one before."""
    edited = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    if edited:
        return edited
    return git("diff", "--name-only", "HEAD~1", "HEAD")


def mirrors(file: Path, tests: list[Path]) -> list[Path]:
    """Test files that a person would run for a file.

    >>> mirrors(Path("explorer/theory/sink.py"), [Path("tests/theory/test_sink.py"),
    Path("tests/test_config.py")]) [PosixPath('tests/theory/test_sink.py')]"""
    if file in tests:
        return [file]
    parts = file.parts
    if parts[0] == "plugins":
        parts = parts[2:]  # plugins/race/explorer_race/race.py is explorer_race.race
    elif parts[0] != "explorer":
        return []
    named = [test for test in tests if test.stem == f"test_{file.stem}"]
    if named:
        return named
    module = ".".join(Path(*parts).with_suffix("").parts)
    package, _, name = module.rpartition(".")
    statements = (f"from {module} import", f"from {package} import {name}\n", f"import {module}")
    importing = []
    for test in tests:
        code = (ROOT / test).read_text(encoding="utf-8")
        if any(statement in code for statement in statements):
            importing.append(test)
    if importing:
        return importing
    room = file.parts[1]  # of a plug-in, its folder
    return [test for test in tests if test.parent.name == room]


def is_quick(test: Path) -> bool:
    """Whether a test file is for `make quick`."""
    place = test.relative_to("tests").with_suffix("").as_posix()
    return not place.startswith(NOT_QUICK)


def main() -> None:
    """Prints the paths."""
    tests = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    quick = [test for test in tests if is_quick(test)]
    chosen = {test for test in quick if test.stem in ALWAYS}
    for file in changed():
        chosen.update(mirrors(file, quick))
    sys.stdout.writelines(f"{test}\n" for test in sorted(chosen))


if __name__ == "__main__":
    main()
