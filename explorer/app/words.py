"""What the page says of configs and profiles, in words. Pure functions."""

from __future__ import annotations

import html
from collections.abc import Sequence

from explorer.app.controls import shown
from explorer.config import Config
from explorer.figures import designs
from explorer.profile import STATISTICS, Profile


def progress_words(config: Config, fraction: float) -> str:
    """'41 % of 3 seeds': how many are measured side by side is the machine's business."""
    return f"{100 * fraction:.0f} % of {config.n_seeds} seed{'s' * (config.n_seeds != 1)}"


def model_words(config: Config) -> str:
    """The size of a design, in words."""
    layers = "1 layer" if config.n_layers == 1 else f"{config.n_layers} layers"
    return f"{layers} of width {config.d_model}"


def summary(measured: Profile, predicted: Profile | None) -> tuple[str, str]:
    """What the status line says of a finished measurement: the sentence, and the particulars."""
    config, place = measured.config, measured.first_nonfinite
    text = f"Measured {model_words(config)}" if config else "Measured"
    if place:
        where = f"layer {place.layer}" if place.layer else "the input"
        label = STATISTICS[place.statistic].label.lower()
        text += f". Not finite from {where}: {label} at the {place.words}, seed {place.seed}"
    parts = [f"in {measured.seconds:.2f} s", seed_words(measured.seeds)]
    if predicted:
        parts.append(f"theory {1e3 * predicted.seconds:.0f} ms")
    return text, " · ".join(parts)


def seed_words(seeds: Sequence[int]) -> str:
    """'seed 0' or 'seeds 0–2'."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}–{seeds[-1]}"


def legend(profiles: Sequence[Profile]) -> str:
    """Which hue is which design, what is a dot and what a line; as HTML."""
    items = []
    seen: set[int] = set()
    for design in designs(profiles):
        if design.index not in seen and design.config:
            name = html.escape(design.label or design_words(design.config))
            items.append(f'<span><i class="ex-hue" style="background:{design.hue}"></i><b>{name}</b></span>')
        seen.add(design.index)
    counts = [len(profile.seeds) for profile in profiles if profile.origin == "measured"]
    if counts:
        items.append(f"<span>● measured, {counts[0]} seed{'s' * (counts[0] != 1)}; band: their spread</span>")
    if any(profile.origin == "predicted" for profile in profiles):
        items.append("<span>— predicted</span>")
    return f'<div class="ex-items">{"".join(items)}</div>'


def design_words(config: Config) -> str:
    """The names of a design's choices: 'Pre-LN · x + α F(x), α = 1'."""
    specs = Config.specs()
    norm = specs["norm_placement"].about.options[config.norm_placement].source.partition(":")[0] or "no norm"
    residual = specs["residual"].about.options[config.residual].formula
    alpha = f", α = {shown(config.alpha)}" if config.residual == "constant" else ""
    return f"{norm} · {residual}{alpha}"
