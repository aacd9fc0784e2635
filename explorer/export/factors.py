"""Text of the factors on stream, branches and norms: a number, a formula, or an attribute of each layer."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from explorer.config import Config
from explorer.export.formulas import BRANCHES, SKIPS
from explorer.export.spelling import number, spell
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.schemes.placement import placements
from explorer.schemes.residual import multipliers

SCALE = "number ** -0.5"
"""LayerNorm scaling's, from the layer's number."""
BRANCH_NAMES = "attention", "mlp"


class Factor(NamedTuple):
    """A factor as the forward pass writes it, and the line of the constructor that keeps it, where it needs one."""

    text: str
    kept: str = ""


@lru_cache(maxsize=64)
def factor(config: Config, kind: str, branch: int, layers: tuple[int, ...]) -> Factor:
    """The factor called skip, branch or scale of a branch, 0 or 1, in some layers, counted from 1."""
    every = _values(config, kind)[branch::2]
    values = [every[layer - 1] for layer in layers]
    if len(set(values)) == 1:
        written = spell(config, values[0], *_formulas(config, kind))
        return Factor(written if written == number(values[0]) else kind.upper())
    if all(spell(config, value, SCALE.replace("number", str(layer))) != number(value)
           for value, layer in zip(values, layers, strict=True) if layer > 1):
        return Factor(f"self.{kind}", f"self.{kind} = {SCALE}")
    name = f"{BRANCH_NAMES[branch]}_{kind}"
    return Factor(f"self.{name}", f"self.{name} = {name.upper()}[number - 1]")


def constants(config: Config) -> dict[str, str]:
    """The names that factors may have in the file, and their text."""
    texts: dict[str, str] = {}
    for kind in ("skip", "branch", "scale"):
        values = _values(config, kind)
        written = {spell(config, value, *_formulas(config, kind)) for value in set(values)} - set(map(number, values))
        texts |= {kind.upper(): text for text in written}
        texts |= {f"{name.upper()}_{kind.upper()}": f"[{', '.join(map(number, values[branch::2]))}]"
                  for branch, name in enumerate(BRANCH_NAMES)}
    return texts


def _values(config: Config, kind: str) -> tuple[float, ...]:
    """Values of a kind of factor by sublayer, `[2N]`."""
    if kind == "scale":
        return tuple(place.scale for place in placements(config))
    return multipliers(config).skip if kind == "skip" else multipliers(config).branch


def _formulas(config: Config, kind: str) -> tuple[str, ...]:
    if kind == "skip":
        return SKIPS.get(config.residual, ""), SKIPS.get(config.norm_placement, "")
    if kind == "scale":
        return ()
    by_depth = f"{config.base_depth} / N_LAYERS" if PARAMETRIZATIONS[config.parametrization].branch.depth else ""
    weighed = by_depth and f"{number(config.alpha)} * {by_depth}"
    return BRANCHES.get(config.residual, ""), *((by_depth,) if config.alpha == 1 else (weighed,))
