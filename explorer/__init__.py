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
from typing import TYPE_CHECKING, Any

from explorer import plugins
from explorer.display import DRAWERS, GLANCES

# Records show themselves, but the figures stand above them: only here are they connected.
DRAWERS.update(
    Comparison=lambda: import_module("explorer.figures").plot_comparison,
    Profile=lambda: import_module("explorer.figures").plot,
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
    from explorer.lessons.ledger import ledger
    from explorer.lessons.live import live
    from explorer.lessons.picture import picture
    from explorer.lessons.settings import slider
    from explorer.measuring import measure
    from explorer.profile import Profile
    from explorer.schemes.preset import PRESETS
    from explorer.stopping import Stopped
    from explorer.sweeping.sweeps import Sweep, sweep
    from explorer.theory.predict import predict
    from explorer.theory.solve import Solution, solve
    from explorer.translation import language

__all__ = [
    "PRESETS",
    "Comparison",
    "Config",
    "ConfigError",
    "Finding",
    "Profile",
    "Solution",
    "Stopped",
    "Sweep",
    "check",
    "compare",
    "dashboard",
    "diagnose",
    "hint",
    "language",
    "ledger",
    "live",
    "measure",
    "picture",
    "predict",
    "preset",
    "slider",
    "solution",
    "solve",
    "sweep",
    "torch_code",
]

_MODULES = {
    "app.dashboard": ("dashboard",),
    "config": ("Config", "ConfigError", "preset"),
    "diagnosis": ("Finding", "diagnose"),
    "diagnosis.comparing": ("Comparison", "compare"),
    "export.module": ("torch_code",),
    "lessons.checking": ("check", "hint", "solution"),
    "lessons.ledger": ("ledger",),
    "lessons.live": ("live",),
    "lessons.picture": ("picture",),
    "lessons.settings": ("slider",),
    "measuring": ("measure",),
    "profile": ("Profile",),
    "schemes.preset": ("PRESETS",),
    "stopping": ("Stopped",),
    "sweeping.sweeps": ("Sweep", "sweep"),
    "theory": ("Solution", "predict", "solve"),
    "translation": ("language",),
}
_HOMES = {name: f"explorer.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads a public name from the module it lives in; the version is the installed
    distribution's."""
    if name == "__version__":
        from importlib.metadata import version

        return version("transformer-signal-explorer")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    # importlib.metadata takes some milliseconds: names with underscores are Python's questions
    references = {} if name.startswith("_") else plugins.references("names")
    if name in references:
        return plugins.load(references[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{plugins.absence(name)}")


def __dir__() -> list[str]:
    """The public names, for completion: these, and those of the plug-ins that are there."""
    return [*__all__, *plugins.references("names")]
