"""Small mistakes, made on purpose: which of them do the tests of a file notice?

    python -m benchmarks.mutations
        # 60 mistakes of seed 0; exits with 1 if fewer than 90 % are noticed
    python -m benchmarks.mutations --seed 3 --count 20 --rooms explorer/tasks explorer/export

A mistake is one changed place in a copy of the working tree: a comparison turned or moved by its
bound, 0, 1 or 2 off by one, `and` in place of `or`, a condition negated, a call left out. The tests
that `make quick` would run for the file (`tests/touched.py`) and those of its room then run until
the first fails. What survives is printed with its line."""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests import touched

ROOT = Path(__file__).parents[1]
BROKEN = 70
"""Exit code of a process in which the tests could not be run."""
WANTED = 0.9
"""The share that is to be noticed."""
LIMIT = 900
"""Seconds that the tests may take; a mistake that keeps them longer is noticed."""
FILES = ("git", "ls-files", "-co", "--exclude-standard")
"""Lists what is copied."""
HEAVY = ("torch", "pandas", "scipy.stats", "plotly.graph_objects", "anywidget", "pytest")
"""Modules that the tests' processes, which are forks, have from their start; none brings a plug-in
of pytest."""
ROOMS = (
    "explorer/app",
    "explorer/diagnosis",
    "explorer/export",
    "explorer/tasks",
    "plugins/race/explorer_race",
)
SCRIPTS = {
    "stories": ("browser/test_stories",),
    "compare": ("browser/test_compare",),
    "diagram": ("browser/test_diagram",),
    "standings": ("browser/test_race",),
    "glossary": ("browser/test_glossary",),
    "address": ("browser/test_links",),
    "files": ("browser/test_saved", "browser/test_home"),
    "search": ("browser/test_scripts", "browser/test_designs"),
    "roster_box": ("browser/test_compare", "browser/test_race"),
    "update": ("browser/test_scripts", "browser/test_drag"),
    "controls": (
        "browser/test_scripts",
        "browser/test_tools",
        "browser/test_designs",
        "browser/test_drag",
    ),
    "parts": ("browser/test_scripts", "browser/test_silence", "browser/test_page"),
    "chart": ("browser/test_page", "browser/test_drag"),
    "": ("browser/test_scripts", "browser/test_page", "browser/test_voila", "browser/test_tools"),
}
"""The tests of a script, by a part of its path; the first counts."""
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
IN_SCRIPTS = (
    ("===", "!=="),
    ("!==", "==="),
    (" < ", " <= "),
    (" > ", " >= "),
    (" && ", " || "),
    (" || ", " && "),
    (" + 1", " + 2"),
    (" - 1", " - 2"),
    ("if (", "if (!"),
)


class Mistake(NamedTuple):
    """A place of a file, in bytes, and what is to stand there."""

    file: str
    line: int
    start: int
    end: int
    new: str


def turned(node: ast.AST) -> ast.AST | None:
    """A node with a mistake, where one is made of such nodes."""
    match node:
        case ast.Compare(left, [operator], others) if type(operator) in TURNED:
            return ast.Compare(left, [TURNED[type(operator)]()], others)
        case ast.Constant(bool()):
            return None
        case ast.Constant(int() as value) if value in (0, 1, 2):
            return ast.Constant(value + 1)
        case ast.BoolOp(ast.And(), values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Expr(ast.Call()):
            return ast.Pass()
    return None


def nodes(tree: ast.AST, within: bool = False) -> Iterator[ast.AST]:
    """Nodes of functions, without f-strings, whose places Python does not know, and without
    annotations."""
    for name, field in ast.iter_fields(tree):
        for child in field if isinstance(field, list) else [field]:
            if (
                not isinstance(child, ast.AST)
                or isinstance(child, ast.JoinedStr)
                or name in ("annotation", "returns")
            ):
                continue
            if within:
                yield child
            yield from nodes(child, within or isinstance(child, ast.FunctionDef | ast.Lambda))


def mistakes(file: Path) -> Iterator[Mistake]:
    """Every mistake that can be made in a file."""
    name, raw = file.relative_to(ROOT).as_posix(), file.read_bytes()
    if file.suffix == ".js":
        for old, new in IN_SCRIPTS:
            for found in re.finditer(re.escape(old).encode(), raw):
                start, end = found.span()
                yield Mistake(name, raw.count(b"\n", 0, start) + 1, start, end, new)
        return
    begins = [0]
    for line in raw.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node in nodes(ast.parse(raw)):
        if isinstance(node, ast.expr | ast.stmt) and (new := turned(node)) and node.end_lineno:
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + (node.end_col_offset or 0)
            text = ast.unparse(ast.fix_missing_locations(new))
            yield Mistake(
                name, node.lineno, start, end, text if isinstance(node, ast.stmt) else f"({text})"
            )


def drawn(
    seed: int, count: int, rooms: Sequence[str], endings: Sequence[str] = (".py", ".js")
) -> list[Mistake]:
    """Mistakes at random, as many of each folder as of the others, in files with these endings."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    left = []
    for room in rooms:
        files = sorted(file for file in (ROOT / room).rglob("*") if file.suffix in endings)
        every = [mistake for file in files for mistake in mistakes(file)]
        left.append(draw.sample(every, min(len(every), count)))
    return [mistake for turn in zip(*left, strict=False) for mistake in turn][:count]


def mirrors(file: str) -> list[str]:
    """The test files of a file, its own first; of a script those of `SCRIPTS`."""
    if file.endswith(".js"):
        found = next(tests for name, tests in SCRIPTS.items() if name in file)
        return [f"tests/{name}.py" for name in found]
    every = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    quick = [path for path in every if touched.is_quick(path)]
    own = touched.mirrors(Path(file), quick)
    room = [path for path in quick if path.parent.name == Path(file).parts[1]]
    return list(dict.fromkeys(path.as_posix() for path in (*own, *room)))


def tested(tree: Path, tests: Sequence[str], said: Path) -> str:
    """Runs tests in a copy of the working tree: the first that fails, `time`, or nothing where all
    pass."""
    process = os.fork()
    if not process:
        try:
            run(tree, tests, said)
        finally:  # nothing of this process's parent is to be ended by it
            traceback.print_exc()
            os._exit(BROKEN)
    end = time.monotonic() + LIMIT
    while not (ended := os.waitpid(process, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.2)
    if not ended[0]:
        os.killpg(process, 9)
        os.waitpid(process, 0)
        return "time"
    if not ended[1]:
        return ""
    words = said.read_text(encoding="utf-8")
    if failed := re.findall(r"^(?:FAILED|ERROR) (\S+)", words, re.MULTILINE):
        return failed[0]
    raise RuntimeError(f"the tests could not be run:\n{words}")


def run(tree: Path, tests: Sequence[str], said: Path) -> None:
    """Runs tests in this process, and ends it."""
    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(tree)
    paths = [str(tree), *map(str, (tree / "plugins").iterdir())]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.dont_write_bytecode = True
    code = import_module("pytest").main(["-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    os._exit(code)


def main() -> int:
    """Makes the mistakes one by one, and prints what was noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, metavar="FOLDER")
    parser.add_argument("--endings", nargs="+", default=(".py", ".js"), choices=(".py", ".js"))
    parser.add_argument("--list", action="store_true", help="print the mistakes, and make none")
    chosen = parser.parse_args()
    for module in HEAVY:
        import_module(module)
    noticed = made = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        listed = subprocess.check_output(FILES, cwd=ROOT, text=True)
        for name in listed.splitlines():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
        for mistake in drawn(chosen.seed, chosen.count, chosen.rooms, chosen.endings):
            raw = (ROOT / mistake.file).read_bytes()
            old = raw[mistake.start : mistake.end].decode()
            print(f"{mistake.file}:{mistake.line}: {old!r} → {mistake.new!r}", end="", flush=True)
            if chosen.list:
                print()
                continue
            (tree / mistake.file).write_bytes(
                raw[: mistake.start] + mistake.new.encode() + raw[mistake.end :]
            )
            first = tested(tree, mirrors(mistake.file), Path(folder) / "said")
            (tree / mistake.file).write_bytes(raw)
            made += 1
            noticed += bool(first)
            print(f": {first or 'SURVIVED'}", flush=True)
    print(f"{noticed} of {made} noticed")
    return int(noticed < WANTED * made)


if __name__ == "__main__":
    sys.exit(main())
