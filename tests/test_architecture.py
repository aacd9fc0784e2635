"""The house has floors: a module imports only from floors below its own, and some rooms keep out
some guests. Plug-ins stand beside it: it knows nothing of them, and they use a documented part of
it.

Every file of the package is read as a syntax tree, so imports inside functions count, and nothing
is executed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import explorer
from explorer.plugins import KNOWN

PACKAGE = Path(explorer.__file__).parent
ROOT = Path(__file__).parents[1]
PLUGINS = tuple(sorted(path for path in ROOT.glob("plugins/*/explorer_*") if path.is_dir()))

FLOORS = {
    "fields": 0,
    "numbers": 0,
    "display": 0,
    "plotlyjs": 0,
    "stopping": 0,
    "choices": 1,
    "schemes": 1,
    "memory": 0,
    "log": 0,
    "translation": -1,
    "settings": 2,
    "design": 3,
    "limits": 4,
    "config": 5,
    "tasks": 5,
    "foreign": 0,
    "sites": 4,
    "vocabulary": 5,
    "stored": 6,
    "profile": 7,
    "theory": 8,
    "text": 8,
    "model": 9,
    "measuring": 10,
    "diagnosis": 10,
    "ends": 8,
    "plugins": -1,
    "sweeping": 11,
    "glossary": 0,
    "figures": 12,
    "export": 13,
    "app": 14,
    "lessons": 15,
    "command": 16,
    "__main__": 17,
}
"""Rooms by floor: a room is a module, or a package with all its modules."""

THEORY_MAY_IMPORT = {
    "translation",
    "fields",
    "limits",
    "design",
    "settings",
    "numbers",
    "display",
    "choices",
    "config",
    "profile",
    "schemes",
    "sites",
    "vocabulary",
}
GUESTS = {
    "anywidget": {"app"},
    "plotly": {"figures", "lessons", "app"},
    "jinja2": {"export"},
}
"""Libraries that only some rooms may use; Voilà and JupyterLab are for plug-ins."""


def modules_of(package: Path) -> dict[str, Path]:
    """The modules of a package, by full name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


CORE = modules_of(PACKAGE)
OUTSIDE = {name: path for package in PLUGINS for name, path in modules_of(package).items()}
"""The modules of plug-ins."""
MODULES = CORE | OUTSIDE


def room(module: str) -> str:
    return module.removeprefix("explorer").removeprefix(".").split(".")[0]


def targets(node: ast.AST, module: str) -> Iterator[str]:
    """The modules that an import statement names, most precise name first known to be one."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, (
            f"{module} imports relatively; say explorer.… so that the floor can be read"
        )
        for name in node.names:
            inner = f"{node.module}.{name.name}"
            yield inner if inner in MODULES else str(node.module)


def typing_only(tree: ast.Module) -> set[ast.AST]:
    """Statements under `if TYPE_CHECKING:`, which never run."""
    guarded = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]
    return {inner for node in guarded for statement in node.body for inner in ast.walk(statement)}


@cache
def imports(module: str) -> set[str]:
    """Everything that a module imports, anywhere in its file, by full name."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    skipped = typing_only(tree)
    return {
        name for node in ast.walk(tree) if node not in skipped for name in targets(node, module)
    }


def reachable(module: str) -> dict[str, str]:
    """Everything that a module imports directly or through others of the package, with who imports
    it."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        importer = waiting.pop()
        for name in imports(importer) if importer in MODULES else ():
            if name not in found:
                found[name] = importer
                waiting.append(name)
    return found


INSIDE = sorted(set(CORE) - {"explorer"})
"""All modules of the package but its public face."""


def test_every_module_has_a_floor() -> None:
    assert [module for module in INSIDE if room(module) not in FLOORS] == []


def test_imports_go_strictly_down() -> None:
    """explorer, the public face, stands above every module."""
    pairs = [
        (module, name)
        for module in INSIDE
        for name in imports(module)
        if name.split(".")[0] == "explorer"
    ]
    assert [
        f"{module} imports {name}"
        for module, name in pairs
        if name == "explorer"
        or (room(name) != room(module) and FLOORS[room(name)] >= FLOORS[room(module)])
    ] == []


def test_no_module_reaches_itself() -> None:
    """Inside a package there are no floors; that no circle closes is what remains to be asked."""
    for module in MODULES:
        circle = reachable(module).get(module)
        assert circle is None, f"{module} imports modules that lead back to it through {circle}"


def test_guests_stay_in_their_rooms() -> None:
    guests = [
        (module, name)
        for module in INSIDE
        for name in imports(module)
        if name.split(".")[0] in GUESTS
    ]
    assert [
        f"{module} imports {name}"
        for module, name in guests
        if room(module) not in GUESTS[name.split(".")[0]]
    ] == []
    assert {name.split(".")[0] for _, name in guests} == {*GUESTS}, "each guest is in its room"


SURFACE = set(
    re.findall(r"`(explorer[\w.]*)`", (ROOT / "docs/plugins.md").read_text(encoding="utf-8"))
)
"""Modules that plug-ins may import, as the guide lists them."""


def test_the_package_names_no_plug_in_in_an_import() -> None:
    """Not even for types: it works, and is checked, where none is installed."""
    names = {package.name for package in PLUGINS}
    assert names == {"explorer_models", "explorer_race", "explorer_serve"}
    found = []
    for module, path in CORE.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found += [(module, name) for name in targets(node, module) if name[:9] == "explorer_"]
    assert found == []


@pytest.mark.parametrize("module", sorted(OUTSIDE))
def test_a_plug_in_uses_itself_and_what_the_guide_lists(module: str) -> None:
    package = module.split(".")[0]
    of_project = {name for name in imports(module) if name.startswith("explorer")}
    own = {name for name in of_project if name.split(".")[0] == package}
    assert of_project - own - SURFACE == set()


def test_the_guide_lists_modules_that_there_are_and_that_are_used() -> None:
    used = {name for module in OUTSIDE for name in imports(module)}
    assert SURFACE - set(CORE) == set()
    assert SURFACE - used == set()


THEORY = [module for module in MODULES if room(module) == "theory"]
COMPARED = ("torch", "explorer.model", "explorer.measuring", "explorer_models")
"""What theory is compared with, which it must not reach."""


def test_theory_is_independent_of_what_it_is_compared_with() -> None:
    assert [
        f"{module} reaches {name} through {importer}"
        for module in THEORY
        for name, importer in reachable(module).items()
        if f"{name}.".startswith(tuple(f"{at}." for at in COMPARED))
    ] == []
    assert [
        f"{module} imports {name}"
        for module in THEORY
        for name in imports(module)
        if name.startswith("explorer.") and room(name) not in {"theory", *THEORY_MAY_IMPORT}
    ] == []


LATE = {
    "numpy",
    "pandas",
    "pydantic",
    "plotly",
    "torch",
    "jinja2",
    "dask",
    "distributed",
    "xarray",
    "zarr",
}
LOADED = (
    "explorer",
    "explorer.sweeping.sweeps",
    "explorer.profile",
    "explorer.figures",
    "explorer.export.module",
    "explorer.app.dashboard",
)
"""What is imported, in this order, in one fresh process."""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """For each module of `LOADED` what of `LATE` is there once it is imported after those before
    it."""
    code = f"""
import importlib, json, sys
for name in {LOADED}:
    importlib.import_module(name)
    print(json.dumps([name, sorted({LATE} & sys.modules.keys())]))
"""
    lines = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    return {name: set(found) for name, found in map(json.loads, lines)}


def test_the_package_alone_costs_nothing(loaded: dict[str, set[str]]) -> None:
    """What draws a record is named when the package is imported, and loaded when something is
    drawn."""
    assert loaded["explorer"] == set()


@pytest.mark.parametrize("module", LOADED)
def test_torch_waits_until_something_is_measured(module: str, loaded: dict[str, set[str]]) -> None:
    """Importing these must not import torch: it takes a second, and the page is shown meanwhile."""
    assert "torch" not in loaded[module], (
        f"importing {module}, or a module before it in LOADED, imports torch"
    )


def test_the_template_engine_waits_until_a_file_is_written(loaded: dict[str, set[str]]) -> None:
    assert "jinja2" not in loaded[LOADED[-1]]


def test_what_spreads_and_keeps_a_sweep_waits_until_one_runs(loaded: dict[str, set[str]]) -> None:
    assert not loaded["explorer.app.dashboard"] & {"xarray", "zarr", "distributed"}
    assert not loaded["explorer.sweeping.sweeps"] & {
        "dask",
        "distributed",
        "xarray",
        "zarr",
        "pandas",
    }


def test_pandas_is_whole_before_a_page_draws(loaded: dict[str, set[str]]) -> None:
    """plotly looks for pandas as it draws, and breaks on one that another thread still imports."""
    assert "pandas" not in loaded["explorer.export.module"]
    assert "pandas" in loaded["explorer.app.dashboard"]


THEORY_ALONE = """
import sys

NEEDED = {"explorer", "numpy", "scipy", "pydantic"}
OF_PYDANTIC = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


class Absent:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        ours = first in NEEDED | OF_PYDANTIC or first in sys.stdlib_module_names
        if not ours and not first.startswith("_sysconfigdata"):  # a platform's part of the library
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""
"""Beginning of a program that finds no packages but these, as where no others are installed."""


def test_theory_needs_numpy_scipy_and_pydantic_alone() -> None:
    """Its import, a prediction, a solution and a text of the result, without any other package."""
    code = f"""{THEORY_ALONE}
import explorer as ex

config = ex.Config(n_layers=3, norm_placement="post", position="rotary")
print(repr(ex.predict(config, spectra=True))[:18])
print(ex.solve(config, vary="init_variance", target="flat_gradient").achieved > 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["Profile(predicted:", "True"]


def test_a_figure_needs_no_pandas() -> None:
    """Tables do: pandas takes half a second, which a figure need not wait for."""
    code = """
import sys
import explorer as ex

profile = ex.predict(ex.Config())
figure = profile.plot()
figure.to_json()
ex.compare(profile, profile).plot()
print(len(figure.data) > 0, {"pandas", "torch", "xarray", "psutil"} & sys.modules.keys())
"""
    drawn = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert drawn == "True set()\n"


def test_public_face() -> None:
    """What users may rely on: a name comes or goes here on purpose, with a line in the
    changelog."""
    documented = {
        "PRESETS",
        "Comparison",
        "Config",
        "ConfigError",
        "Contender",
        "CoordCheck",
        "Finding",
        "Profile",
        "Race",
        "Recipe",
        "Solution",
        "Start",
        "Stopped",
        "Sweep",
        "Task",
        "Training",
        "Twin",
        "Watch",
        "check",
        "compare",
        "coord_check",
        "dashboard",
        "diagnose",
        "expect",
        "hint",
        "language",
        "ledger",
        "live",
        "measure",
        "picture",
        "predict",
        "preset",
        "probe",
        "race",
        "slider",
        "solution",
        "solve",
        "sweep",
        "torch_code",
        "twin",
        "watch",
    }
    assert set(dir(explorer)) == documented
    assert set(explorer.__all__) == documented - {
        name for names in KNOWN.values() for name in names
    }
    for name in documented:
        assert getattr(explorer, name).__doc__, f"explorer.{name} has no docstring"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        explorer.nothing  # noqa: B018
