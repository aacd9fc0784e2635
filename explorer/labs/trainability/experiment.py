"""Trainability: short trainings over whole regions, and the border that theory draws before the first step.

Two maps. Residual α over depth: branches of weight α let the tokens become alike, the more the deeper, and a stack
whose tokens are alike at its end does not learn; with 2N branches that is so from about α = 1/√(2N) on. Learning rate
over width: the best rate falls with the width under the standard parametrization, and stays where it is under μP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.labs import Look, Verdict, unseen
from explorer.labs.maps import Over, crossing, swept, unswept
from explorer.labs.stacks import powers_of_two
from explorer.labs.trained import LEARNS, Seed
from explorer.numbers import number, percent
from explorer.profile import Array
from explorer.stopping import Progress, Stop
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task

if TYPE_CHECKING:
    import xarray as xr

SMALL: Mapping[str, int] = {"d_model": 32, "n_heads": 2, "n_ctx": 16, "batch_size": 8}
ALPHAS = tuple(2.0**power for power in range(-4, 1))
NARROWEST = 16
RATES = tuple(np.geomspace(1e-3, 0.1, 5).tolist())
ALIKE = 0.5
"""Predicted token correlation after the last layer from which on a stack is expected not to learn."""
AGREE = 0.8
"""Share of the cells from which on the border is said to be in the right place."""
STATISTICS = ("token_correlation", "activation_gradient")
LAWS: Mapping[str, Callable[[Array], Array]] = {
    "1/√(2N)": lambda n: (2 * n) ** -0.5,
    "DeepNorm": lambda n: (8 * n) ** -0.5 * (2 * n) ** -0.25,
}
"""α by depth. DeepNorm's branch, two matrices of (8N)^(−¼) each, against its stream's (2N)^¼."""


class Design(NamedTuple):
    """A design whose α is varied."""

    label: str
    choices: Mapping[str, Any]
    laws: tuple[str, ...] = ("1/√(2N)",)


DESIGNS: Mapping[str, Design] = {
    "post": Design("Post-LN", {"norm_placement": "post"}, ("1/√(2N)", "DeepNorm")),
    "pre": Design("Pre-LN", {"norm_placement": "pre"}),
    "keel": Design("Keel", {"norm_placement": "keel"}),
    "none": Design("no norm", {"norm_placement": "none"}),
}
AS_PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "Post-LN": {"norm_placement": "post"}, "Pre-LN": {"norm_placement": "pre"},
    "DeepNorm": {"norm_placement": "post", "residual": "deepnorm"}, "Keel": {"norm_placement": "keel"},
}
"""Designs at α = 1, shallow and deep."""
PARAMETRIZATIONS: Mapping[str, str] = {"standard": "standard", "mup": "μP"}


class Trainability(Choices):
    """Design, learning rate and length of the trainings."""

    design: str = setting("post", "Design", "", "Whose residual α is varied.",
                          options={name: Option(row.label) for name, row in DESIGNS.items()})
    n_layers: int = setting(8, "Depth", "", "Of the deepest stacks; time grows with it.", 4, 32, symbol="N",
                            unit="layers", log=True)
    learning_rate: float = setting(5e-3, "Learning rate", "", "Adam's, where α is varied.", 1e-3, 2e-2, symbol="η",
                                   log=True)
    widest: int = setting(64, "Width", "", "Of the widest models, where the learning rate is varied.", 32, 256,
                          symbol="d", unit="coordinates", log=True)
    steps: int = setting(60, "Training steps", "", "Of each training, two thirds where the width is varied; time grows "
                         "with them.", 20, 200, unit="steps", log=True)
    seed: Seed = 0

    @property
    def depths(self) -> list[int]:
        """2, 4, 8, … and the deepest."""
        return powers_of_two(self.n_layers)[1:]

    @property
    def widths(self) -> list[int]:
        """16, 32, 64, … and the widest, of two heads."""
        return [NARROWEST * size for size in powers_of_two(self.widest // NARROWEST)]

    def config(self, **choices: Any) -> Config:
        """A small design that reads text."""
        return Task().fit(Config(**{**SMALL, "seed": self.seed, **choices}))

    @property
    def how(self) -> dict[str, Any]:
        """Training of every cell in which the learning rate is not varied."""
        return {"recipe": Recipe(learning_rate=self.learning_rate), "steps": self.steps, "task": Task(seed=self.seed)}

    @property
    def sweeps(self) -> dict[str, tuple[Config, Over, dict[str, Any]]]:
        """Name to the arguments of each sweep, in the order in which they are computed."""
        alpha: Over = {"n_layers": self.depths, "alpha": ALPHAS}
        widths: Over = {"d_model": self.widths, "learning_rate": RATES}
        ends: Over = {"n_layers": self.depths[:: len(self.depths) - 1]}
        every = {**self.how, "origins": ("predicted", "measured", "trained")}
        trained = {**every, "origins": ("trained",)}
        shorter = {**trained, "steps": 2 * self.steps // 3}
        return {
            "alpha": (self.config(**DESIGNS[self.design].choices), alpha, every),
            **{name: (self.config(n_layers=2, parametrization=name), widths, shorter) for name in PARAMETRIZATIONS},
            **{name: (self.config(**choices), ends, trained) for name, choices in AS_PUBLISHED.items()},
        }


@dataclass(frozen=True, eq=False)
class TrainabilityResult:
    """All sweeps, by name; cells that are not there yet are nan."""

    settings: Trainability
    maps: Mapping[str, xr.Dataset]


def run(settings: Trainability, stop: Stop = lambda: False, progress: Progress = lambda _: None, look: Look = unseen
        ) -> TrainabilityResult:
    """Predicts, measures and trains, one sweep after the other.

    Raises:
        Stopped: `stop()` said true.
    """
    sweeps = settings.sweeps
    result = TrainabilityResult(settings, {
        name: unswept(config, over, STATISTICS, **how) for name, (config, over, how) in sweeps.items()})
    for place, (name, (config, over, how)) in enumerate(sweeps.items()):
        def share(part: float, place: int = place) -> None:
            progress((place + part) / len(sweeps))

        def after(make: Callable[[], Any], before: TrainabilityResult = result, name: str = name) -> None:
            look(lambda: replace(before, maps={**before.maps, name: make()}))

        dataset = swept(config, over, STATISTICS, stop, share, after, **how)
        result = replace(result, maps={**result.maps, name: dataset})
    return result


def trains(dataset: xr.Dataset) -> Any:
    """Whether a cell is below the unigram's loss at its end; a cell that fell out is not."""
    return dataset["loss_drop"].sel(origin="trained") > LEARNS


def agreement(dataset: xr.Dataset) -> tuple[int, int]:
    """Cells of the map over α that train just where theory has unlike tokens, and all of them."""
    expected = dataset["token_correlation"].sel(origin="predicted") < ALIKE
    return int((expected == trains(dataset)).sum()), int(expected.size)


def borders(dataset: xr.Dataset) -> Array:
    """`[depth]`: α above which a stack does not train; nan where all or none do."""
    rows = dataset["loss_drop"].sel(origin="trained").transpose("n_layers", "alpha").values
    return np.array([crossing(ALPHAS, np.maximum(row, 1e-3), LEARNS) for row in rows])


def best(dataset: xr.Dataset) -> Array:
    """`[width]`: the learning rate with the lowest loss."""
    rows = dataset["loss_drop"].sel(origin="trained").transpose("d_model", "learning_rate").values
    return np.array([RATES[int(np.nanargmax(np.where(np.isfinite(row), row, -np.inf)))] for row in rows])


def verdict(result: TrainabilityResult) -> Verdict:
    """Whether training works where theory says, and how far the best rate moves with the width."""
    alike, every = agreement(result.maps["alpha"])
    moved = {name: best(result.maps[name]) for name in PARAMETRIZATIONS}
    rates = "; ".join(f"{PARAMETRIZATIONS[name]} {number(rate[0])} → {number(rate[-1])}"
                      for name, rate in moved.items())
    deepest = ", ".join(f"{name} {'trains' if bool(trains(result.maps[name])[-1]) else 'does not yet'}"
                        for name in AS_PUBLISHED)
    evidence = (
        f"{DESIGNS[result.settings.design].label}: {alike} of {every} cells train just where theory has tokens less "
        f"than half alike. Best learning rate from width {NARROWEST} to "
        f"{result.settings.widths[-1]}: {rates}. At "
        f"{result.settings.n_layers} layers and α = 1: {deepest}. Each cell is one short training."
    )
    if alike < AGREE * every:
        return "warning", f"Only {percent(alike / every)} of the cells train where theory expects it.", evidence
    return "good", "Theory, before the first step, draws the border of what trains.", evidence


def orders(seed: int = 0) -> dict[str, bool]:
    """Statements of the notebook about one seed, deeper and wider than the lab begins."""
    maps = run(Trainability(n_layers=12, widest=128, seed=seed)).maps
    edge = borders(maps["alpha"])[1:]  # two layers may train at every α
    moved = {name: best(maps[name]) for name in PARAMETRIZATIONS}
    alike, every = agreement(maps["alpha"])
    return {
        "Post-LN: the border falls with depth, from 4 layers to 12": bool((np.diff(edge) < 0).all()),
        "Post-LN: by more than N^(−½) says": bool(edge[0] / edge[-1] > 3**0.5),
        "Post-LN: nine of ten cells train just where theory expects it": 10 * alike >= 9 * every,
        "Keel: shallow and deep trains at α = 1": bool(trains(maps["Keel"]).all()),
        "DeepNorm: shallow and deep trains": bool(trains(maps["DeepNorm"]).all()),
        "standard: the best rate falls by more than 3 from width 16 to 128": bool(
            moved["standard"][0] > 3 * moved["standard"][-1]),
        "μP: it moves by no more than a step of the map from width 32 on": bool(
            max(moved["mup"][1:]) < 4 * min(moved["mup"][1:])),
    }
