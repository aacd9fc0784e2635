"""Transformer Signal Explorer: see what the signal inside a Transformer does, and what theory says
it should.

    import explorer as ex
    measured = ex.measure(ex.Config(n_layers=24, norm_placement="post"))
    ex.diagnose(measured)
    ex.predict(measured.config)
    ex.dashboard()

Names are loaded when they are first used, so that `import explorer` costs nothing and the theory
never waits for torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from explorer.display import DRAWERS, GLANCES

# Records show themselves, but the figures stand above them: only here are they connected.
DRAWERS.update(
    Comparison=lambda: import_module("explorer.figures").plot_comparison,
    Profile=lambda: import_module("explorer.figures").plot,
    Race=lambda: import_module("explorer.figures.race").plot,
    CoordCheck=lambda: import_module("explorer.figures.coordinates").plot,
)
GLANCES.update(
    Comparison=lambda: import_module("explorer.figures.pages").glance_at_comparison,
    Profile=lambda: import_module("explorer.figures.pages").glance,
)

if TYPE_CHECKING:
    from explorer.app.dashboard import dashboard
    from explorer.config import Config, ConfigError, preset
    from explorer.diagnosis import Finding, diagnose
    from explorer.diagnosis.comparing import Comparison, compare
    from explorer.export.module import torch_code
    from explorer.lessons.checking import check, hint, solution
    from explorer.lessons.live import live
    from explorer.lessons.settings import slider
    from explorer.measuring import measure
    from explorer.own.coordinates import CoordCheck, coord_check
    from explorer.own.probe import probe, twin
    from explorer.own.twin import Twin
    from explorer.own.watch import Watch, watch
    from explorer.profile import Profile
    from explorer.schemes.preset import PRESETS
    from explorer.stopping import Stopped
    from explorer.sweeping.sweeps import Sweep, sweep
    from explorer.theory import Solution, predict, solve
    from explorer.training.race import Contender, Race, race
    from explorer.training.recipe import Recipe
    from explorer.training.tasks import Task

__all__ = [
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
    "Stopped",
    "Sweep",
    "Task",
    "Twin",
    "Watch",
    "check",
    "compare",
    "coord_check",
    "dashboard",
    "diagnose",
    "hint",
    "live",
    "measure",
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
]

_MODULES = {
    "app.dashboard": ("dashboard",),
    "config": ("Config", "ConfigError", "preset"),
    "diagnosis": ("Finding", "diagnose"),
    "diagnosis.comparing": ("Comparison", "compare"),
    "export.module": ("torch_code",),
    "lessons.checking": ("check", "hint", "solution"),
    "lessons.live": ("live",),
    "lessons.settings": ("slider",),
    "measuring": ("measure",),
    "own.coordinates": ("CoordCheck", "coord_check"),
    "own.probe": ("probe", "twin"),
    "own.twin": ("Twin",),
    "own.watch": ("Watch", "watch"),
    "profile": ("Profile",),
    "schemes.preset": ("PRESETS",),
    "stopping": ("Stopped",),
    "sweeping.sweeps": ("Sweep", "sweep"),
    "theory": ("Solution", "predict", "solve"),
    "training.race": ("Contender", "Race", "race"),
    "training.recipe": ("Recipe",),
    "training.tasks": ("Task",),
}
_HOMES = {name: f"explorer.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Loads a public name from the module it lives in; the version is the installed
    distribution's."""
    if name == "__version__":
        from importlib.metadata import version

        return version("transformer-signal-explorer")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
