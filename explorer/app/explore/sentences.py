"""Configs and profiles in words, as the page shows them. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.app.design_names import choice_words
from explorer.app.roster import swatch
from explorer.app.widgets.wording import in_words
from explorer.config import Config, differences
from explorer.figures.palette import LegendEntry
from explorer.profile import STATISTICS, Profile
from explorer.schemes.residual import RESIDUALS


def progress_words(config: Config, fraction: float, some: Profile | None = None) -> str:
    """'41 % of 3 seeds': the number measured at the same time depends on the machine. Says how many are drawn of it."""
    shown = f" · the charts show {len(some.seeds)} of them" if some and some.config == config else ""
    return f"{100 * fraction:.0f} % of {config.n_seeds} seed{'s' * (config.n_seeds != 1)}{shown}"


def model_words(config: Config) -> str:
    """The size of a design, in words."""
    layers = "1 layer" if config.n_layers == 1 else f"{config.n_layers} layers"
    return f"{layers} of width {config.d_model}"


def summary(measured: Profile, predicted: Profile | None, *, whole: bool = True) -> tuple[str, str]:
    """Status line of a finished measurement: a sentence, and details.

    Args:
        whole: whether it says what is not finite.
    """
    config, first = measured.config, measured.first_nonfinite
    text = f"Measured {model_words(config)}" if config else "Measured"
    if first and whole:
        where = f"layer {first.layer}" if first.layer else "the input"
        label = STATISTICS[first.statistic].label.lower()
        text += f". Not finite from {where}: {label} at the {first.site_label}, seed {first.seed}"
    parts = [f"in {measured.seconds:.2f} s", seed_words(measured.seeds)]
    if predicted:
        parts.append(f"theory {1e3 * predicted.seconds:.0f} ms")
    return text, " · ".join(parts)


def seed_words(seeds: Sequence[int]) -> str:
    """'seed 0' or 'seeds 0–2'."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}–{seeds[-1]}"


def marks(profiles: Sequence[Profile]) -> list[str]:
    """Meaning of dots and lines, for those that are there."""
    counts = sorted({len(profile.seeds) for profile in profiles if profile.origin == "measured"})
    words = []
    if counts:
        seeds = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
        words.append(f"● measured, {seeds} seed{'s' * (counts[-1] != 1)}; band: smallest to largest")
    if any(profile.origin == "predicted" for profile in profiles):
        words.append("— predicted")
    return words


def design_words(config: Config) -> str:
    """A design in one line: its size, how it adds its branches, and its other differences from the default design."""
    said = ("n_layers", "d_model", "residual", *RESIDUALS[config.residual].uses)
    others = [name for name in differences(config, Config()) if name not in said]
    return " · ".join(filter(None, (model_words(config), residual_words(config), choice_words(config, others))))


def legend_entry(design: LegendEntry, name: str, config: Config) -> dict[str, str]:
    """A design in the legend of a picture that is saved."""
    return {"name": name, "about": design_words(config), **swatch(design)}


def residual_words(config: Config) -> str:
    """The residual rule of a design: 'x + α F(x), α = 1'."""
    rule = RESIDUALS[config.residual]
    alpha = f", α = {in_words(config.alpha)}" if "alpha" in rule.uses else ""
    return f"{rule.formula}{alpha}"
