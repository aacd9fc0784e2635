"""Names the test files that mirror what has changed, for `make quick`.

Changed is what `git` finds different from the last commit, or does not know yet; where there is no
such file, what the last commit changed. A test file mirrors a module if it has the module's name.
Where no test file has it, those that import the module do; where none does, those that mirror the
modules which import it, or have its folder's name; and where none does, those of its room."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
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


@cache
def imported(file: Path) -> frozenset[str]:
    """Modules that a file imports, wherever it does; also names that may be modules of packages."""
    names = set[str]()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


@cache
def modules() -> dict[Path, str]:
    """Modules of all packages: the file of each, and the name under which it is imported."""
    names = {}
    for folder in (ROOT, *(ROOT / "plugins").iterdir()):
        for path in folder.glob("explorer*/**/*.py"):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            names[path.relative_to(ROOT)] = name.removesuffix(".__init__")
    return names


def importing(file: Path, files: Iterable[Path]) -> list[Path]:
    """Those of some files that import a module."""
    module = modules().get(file)
    return [other for other in files if module in imported(other)]


def reads(module: Path, file: Path) -> bool:
    """Whether a module beside a file that is no module has its name, or reads it."""
    if module.parent != file.parent:
        return False
    return module.stem == file.stem or file.name in (ROOT / module).read_text(encoding="utf-8")


def in_room(file: Path, tests: list[Path]) -> list[Path]:
    """Those of some tests that are in the folder of a file's room, or in none where it has none."""
    room = (*file.parts[1:-1], "tests")[0]
    return [test for test in tests if test.parent.name == room]


def named(stems: Iterable[str], tests: list[Path]) -> list[Path]:
    """Those of some tests that have the name of a module or folder."""
    names = {f"test_{stem}" for stem in stems}
    return [test for test in tests if test.stem in names]


def namesakes(file: Path, tests: list[Path]) -> list[Path]:
    """Tests with a file's name, or with that of its folder before it.

    Other rooms have modules of the same name: a test of another room is meant for this module only
    if it imports it. Tests that are in no room's folder may be of any room."""
    stems = [file.stem, *(f"{folder}_{file.stem}" for folder in file.parts[:-1])]
    same = named(stems, tests)
    if file.suffix == ".py":
        own = importing(file, same)
        return own or in_room(file, same)
    return in_room(file, same) or [test for test in same if test.parent.name == "tests"]


def of_users(file: Path, tests: list[Path]) -> list[Path]:
    """Tests with the names of the modules that import one; or else those that import these."""
    users = importing(file, modules())
    for chosen in (namesakes, importing):
        those = {test for user in users for test in chosen(user, tests)}
        if those:
            return sorted(those)
    return []


def of_folders(file: Path, tests: list[Path]) -> list[Path]:
    """Tests of a file's room that have the name of a folder in which the file is; or the test that
    has the name of its room."""
    return in_room(file, named(file.parts[2:-1], tests)) or [
        test for test in named(file.parts[1:2], tests) if test.parent.name == "tests"
    ]


def mirrors(file: Path, tests: list[Path]) -> list[Path]:
    """Test files that a person would run for a file.

    >>> mirrors(Path("explorer/theory/sink.py"), [Path("tests/theory/test_sink.py"),
    Path("tests/test_config.py")]) [PosixPath('tests/theory/test_sink.py')]"""
    if file in tests:
        return [file]
    if file.parts[0] not in ("explorer", "plugins"):
        return []
    if own := namesakes(file, tests):
        return own
    if file.suffix != ".py":
        readers = [path for path in modules() if reads(path, file)]
        return mirrors(readers[0], tests) if readers else of_folders(file, tests)
    if direct := importing(file, tests):
        return in_room(file, direct) or direct
    users = of_users(file, tests)
    if indirect := in_room(file, users) or of_folders(file, tests) or users:
        return indirect
    return in_room(file, tests) if len(file.parts) > 2 else []


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
