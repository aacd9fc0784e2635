"""The trainability lab: what trains, where theory draws the border, and maps that show both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pictures import every, named

from explorer.choices import ConfigError
from explorer.labs import maps
from explorer.labs.maps import unswept
from explorer.labs.trainability import pictures
from explorer.labs.trainability.experiment import (
    ALPHAS,
    AS_PUBLISHED,
    LAWS,
    PARAMETRIZATIONS,
    RATES,
    SMALL,
    STATISTICS,
    Trainability,
    TrainabilityResult,
    agreement,
    best,
    borders,
    run,
    trains,
    verdict,
)
from explorer.labs.trainability.row import ROW
from explorer.stopping import Stopped
from explorer.theory import predict
from explorer.training.race import Contender, Race
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task

QUICK = Trainability(n_layers=4, widest=32, steps=20)


@pytest.fixture(scope="module")
def seen() -> tuple[TrainabilityResult, list[TrainabilityResult], list[float]]:
    """A result, those on its way, and its progress; nothing is remembered of other tests' runs."""
    maps._known.clear()
    parts: list[TrainabilityResult] = []
    told: list[float] = []

    def look(make: Callable[[], Any]) -> None:
        parts.append(make())

    return run(QUICK, progress=told.append, look=look), parts, told


@pytest.fixture(scope="module")
def result(seen: tuple[TrainabilityResult, list[TrainabilityResult], list[float]]) -> TrainabilityResult:
    return seen[0]


def invented(**drops: Any) -> TrainabilityResult:
    """A result with losses of our own; what is not named learns 0.2 nats."""
    settings = Trainability()
    maps = {}
    for name, (config, over, how) in settings.sweeps.items():
        dataset = unswept(config, over, STATISTICS, **how)
        dataset["loss_drop"].loc[{"origin": "trained"}] = drops.get(name, 0.2)
        maps[name] = dataset
    maps["alpha"]["token_correlation"].loc[{"origin": "predicted"}] = np.where(np.array(ALPHAS) > 0.3, 0.9, 0.1)
    return TrainabilityResult(settings, maps)


def test_a_cell_is_a_race_of_one(result: TrainabilityResult) -> None:
    config = Task(seed=0).fit(QUICK.config(norm_placement="post", n_layers=4, alpha=0.25))
    race = Race([Contender("x", config, Recipe(learning_rate=5e-3))], Task(seed=0), 20, every=20).run()
    found = result.maps["alpha"].sel(origin="trained", n_layers=4, alpha=0.25)
    assert float(found["held_out_loss"]) == race.verdict()[0].final_loss
    assert float(found["loss_drop"]) == race.levels.unigram - race.verdict()[0].final_loss
    assert config.d_model == SMALL["d_model"]


def test_the_lines_are_the_theorys(result: TrainabilityResult) -> None:
    config = QUICK.config(norm_placement="post", n_layers=4, alpha=0.5)
    found = result.maps["alpha"]["token_correlation"]
    expected = predict(config)["token_correlation", "resid_post"][0, -1]
    assert float(found.sel(origin="predicted", n_layers=4, alpha=0.5)) == expected
    off = np.abs(found.sel(origin="measured") - found.sel(origin="predicted"))
    assert float(off.max()) < 0.1  # of text, whose characters repeat, in a model 32 wide


def test_theory_has_its_border_at_one_over_the_root_of_the_branches() -> None:
    """α at which tokens are half alike falls with depth as N^(−½), to a tenth in the exponent; not as 1/N."""
    depths = np.array([8, 16, 32])
    at = []
    for n in depths.tolist():
        alphas = np.geomspace(0.1, 1, 25).tolist()
        ends = [predict(Trainability().config(norm_placement="post", n_layers=n, alpha=alpha))
                ["token_correlation", "resid_post"][0, -1] for alpha in alphas]
        at.append(float(np.exp(np.interp(0.5, ends, np.log(alphas)))))
    slope = np.polyfit(np.log(depths), np.log(at), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


def test_post_ln_stops_learning_beyond_the_border_and_deepnorm_and_keel_do_not() -> None:
    """On a seed that is not the notebook's, at three places of the map."""
    settings = Trainability(seed=11)
    task = Task(seed=11)
    contenders = {
        "inside": settings.config(norm_placement="post", n_layers=12, alpha=1 / 16),
        "outside": settings.config(norm_placement="post", n_layers=12),
        "DeepNorm": settings.config(n_layers=12, **AS_PUBLISHED["DeepNorm"]),
        "Keel": settings.config(n_layers=12, **AS_PUBLISHED["Keel"]),
    }
    race = Race([Contender(name, task.fit(config), Recipe(learning_rate=5e-3)) for name, config in contenders.items()],
                task, 40, every=40).run()
    drops = {end.name: race.levels.unigram - end.final_loss for end in race.verdict()}
    assert drops["outside"] < 0.02
    assert min(drops[name] for name in ("inside", "DeepNorm", "Keel")) > 0.1


def test_it_grows_cell_by_cell_and_looking_changes_nothing(
        seen: tuple[TrainabilityResult, list[TrainabilityResult], list[float]]) -> None:
    result, parts, told = seen
    counts = [sum(int(np.isfinite(one["seconds"]).sum()) for one in part.maps.values()) for part in parts]
    cells = len(ALPHAS) * 2
    # measured cells come first, then the next sweep's predictions: it has none
    assert counts == list(range(cells + 1, cells + 1 + len(counts)))
    assert counts[-1] == 3 * cells + 2 * 2 * len(RATES) + 2 * len(AS_PUBLISHED)
    first, last = parts[0], parts[-1]
    for name, dataset in result.maps.items():
        xr.testing.assert_identical(last.maps[name], dataset)
    for plot in ROW.plots:
        plot.draw(first)
    assert (np.diff(told) >= 0).all()
    assert told[-1] == 1


def test_it_stops_when_told() -> None:
    with pytest.raises(Stopped):
        run(QUICK.replace(seed=1), stop=iter([False] * 5 + [True] * 9999).__next__)


def test_borders_and_best_rates_by_hand() -> None:
    drops = np.array([[0.2, 0.2, 0.2, 0.05, 0.0], [0.2, 0.1, 0.0, -1, np.nan], [0.2] * 5])
    found = invented(alpha=drops)
    edge = borders(found.maps["alpha"])
    assert edge[0] == pytest.approx(0.25 * 2**0.5)  # from .2 to .05, a half of it on a log axis
    assert edge[1] == pytest.approx(0.125)
    assert np.isnan(edge[2])
    # expected to train are the first three of each row; .1 itself is not below the unigram's by more than that
    assert agreement(found.maps["alpha"]) == (5 + 3 + 3, 15)
    rates = np.full((3, len(RATES)), 0.0)
    rates[range(3), [4, 3, 1]] = 0.5
    rates[0, 0] = np.nan
    assert best(invented(standard=rates).maps["standard"]) == pytest.approx(np.array(RATES)[[4, 3, 1]])
    assert not bool(trains(invented(Keel=np.nan).maps["Keel"]).any())


def test_the_verdict_follows_the_cells() -> None:
    inside = np.where(np.array(ALPHAS) > 0.3, 0.0, 0.2)
    severity, words, evidence = verdict(invented(alpha=inside, Keel=0.0))
    assert (severity, words) == ("good", "Theory, before the first step, draws the border of what trains.")
    assert "Post-LN: 15 of 15 cells" in evidence
    assert "Post-LN trains, Pre-LN trains, DeepNorm trains, Keel does not yet" in evidence
    severity, words, _ = verdict(invented(alpha=0.2 - inside))
    assert (severity, words) == ("warning", "Only 0 % of the cells train where theory expects it.")


def test_settings_make_the_sweeps() -> None:
    settings = Trainability(design="keel", n_layers=6, seed=3)
    assert settings.depths == [2, 4, 6]
    assert list(settings.sweeps) == ["alpha", *PARAMETRIZATIONS, *AS_PUBLISHED]
    config, over, how = settings.sweeps["alpha"]
    assert (config.norm_placement, config.seed, how["task"].seed) == ("keel", 3, 3)
    assert list(over) == ["n_layers", "alpha"]
    assert settings.sweeps["mup"][0].parametrization == "mup"
    with pytest.raises(ConfigError, match=r"^steps must be a whole number between 20 and 200; got 500$"):
        Trainability(steps=500)


# --- pictures -------------------------------------------------------------------------------------------------


def test_every_picture_is_whole(result: TrainabilityResult) -> None:
    every(ROW, result)


def test_the_widest_models_and_the_largest_rate_make_pictures_too() -> None:
    every(ROW, run(QUICK.replace(widest=256, learning_rate=2e-2)))


def test_the_map_has_its_laws(result: TrainabilityResult) -> None:
    figure = pictures.trained(result)
    line = named(figure, "1/√(2N), line")
    np.testing.assert_allclose(line.x, (2 * line.y) ** -0.5, rtol=1e-6)
    assert named(figure, "DeepNorm, line").y.min() == 2
    np.testing.assert_allclose(LAWS["DeepNorm"](np.array([12.0])), 0.3195**2 / 2.2134, rtol=1e-3)  # its paper's β²/α
    heat = named(figure, "Loss below the unigram's, trained")
    np.testing.assert_allclose(heat.customdata[..., 0], result.maps["alpha"]["loss_drop"].sel(origin="trained"),
                               rtol=1e-6)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    for name in AS_PUBLISHED:
        dots = named(pictures.published(result), name)
        np.testing.assert_allclose(dots.y, result.maps[name]["loss_drop"].values[0], rtol=1e-5)
