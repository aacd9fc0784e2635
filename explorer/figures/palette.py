"""Hues, symbols and dashes: fixed by the design, the same in every figure.

Colors never carry meaning alone: a design has its symbol and its dash too, so that a figure
survives a black-and-white printer and every kind of color vision."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from explorer.config import Config
from explorer.profile import Profile

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""Six hues that all kinds of color vision distinguish (Okabe & Ito 2008), the strongest first."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

NEUTRAL = "rgba(128, 128, 128, 0.8)"
"""Gray of reference marks, legible on light and on dark paper alike."""
SEQUENTIAL = "Cividis"
"""Perceptually uniform, and the same to all kinds of color vision (Nuñez, Anderton & Renslow
2018)."""
DIVERGING = ("#0b4a8f", "#3f8fc4", "#a3c8df", "#d8d5cc", "#ecbd85", "#d9822b", "#8f3b04")
"""Too little, healthy, too much: blue to orange, which all kinds of color vision tell apart, as do
lighter and darker. The middle is a gray that is seen on white paper, the ends are still seen on
black."""


def diverging(distances: ArrayLike) -> list[str]:
    """The diverging color, `#rrggbb`, of each distance from the healthy value: −1 and less is the
    first, 0 the middle, 1 and more the last."""
    indices = np.clip(0.5 + np.asarray(distances) / 2, 0.0, 1.0) * (len(DIVERGING) - 1)
    channels = np.array([rgb(color) for color in DIVERGING]).T  # [red green blue, color]
    mixed = [np.interp(indices, np.arange(len(DIVERGING)), channel) for channel in channels]
    levels = np.rint(mixed).astype(int).T.tolist()
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in levels]


def rgb(color: str) -> list[int]:
    """Red, green and blue of `#rrggbb`, 0 … 255 each."""
    return list(bytes.fromhex(color[1:]))


class MatrixMark(NamedTuple):
    """Marks of one weight matrix."""

    symbol: str
    dash: str
    hue: int
    """Index in `HUES`, for a chart of one design; of several the hue is the design's."""


MATRIX_MARKS: Mapping[str, MatrixMark] = MappingProxyType(
    {
        # Matrices that are applied one after the other share a shape: full is the first, hollow
        # the second.
        "W_Q": MatrixMark("circle", "solid", 0),
        "W_K": MatrixMark("circle-open", "dot", 5),
        "W_V": MatrixMark("square", "solid", 2),
        "W_O": MatrixMark("square-open", "dot", 1),
        "W_G": MatrixMark("cross", "dash", 0),
        "W_gate": MatrixMark("diamond", "dash", 1),
        "W_in": MatrixMark("triangle-up", "solid", 4),
        "W_out": MatrixMark("triangle-up-open", "dot", 3),
        "sink": MatrixMark("pentagon", "dash", 5),
        "alpha": MatrixMark("star", "dash", 4),
        "mix": MatrixMark("hexagon", "dash", 3),
    }
)


@dataclass(frozen=True)
class Look:
    """Hue, symbol and dash of one thing among those drawn together."""

    index: int
    """Its number among them, from 0."""

    @property
    def hue(self) -> str:
        """Color of lines and dots, `#rrggbb`."""
        return HUES[self.index % len(HUES)]

    @property
    def symbol(self) -> str:
        """Symbol of its dots. Each round of the hues shifts the symbols by one, so that hue and
        symbol together are unique up to 36."""
        return SYMBOLS[self._shifted % len(SYMBOLS)]

    @property
    def _shifted(self) -> int:
        """The index, moved on by one for each round of the hues."""
        return self.index + self.index // len(HUES)

    @property
    def dash(self) -> str:
        """Dash of its lines, shifted as the symbols are."""
        return DASHES[self._shifted % len(DASHES)]

    def faint(self, opacity: float) -> str:
        """Its hue, see-through: the color of a band."""
        red, green, blue = rgb(self.hue)
        return f"rgba({red}, {green}, {blue}, {opacity:g})"


@dataclass(frozen=True)
class LegendEntry(Look):
    """One experiment among those drawn together, and the marks it keeps in every figure."""

    config: Config | None
    """None of a model whose design is not known."""
    label: str
    """Its differences from the others; empty when it is alone."""

    @property
    def heading(self) -> str:
        """The label, escaped for plotly: a person may have named it `<b>` or `%{x}`."""
        escaped = html.escape(self.label, quote=False)
        return escaped.replace("%{", "%\u200b{")  # a space without width: no placeholder any more

    @property
    def bold(self) -> str:
        """The heading as a line of its own in a hover text; empty where it is empty."""
        return f"<b>{self.heading}</b><br>" if self.heading else ""

    def named(self, words: str) -> str:
        """The heading followed by a comma and words such as "predicted"; the words alone where it
        is empty."""
        return f"{self.heading}, {words}" if self.heading else words


def designs(profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> list[LegendEntry]:
    """The legend entry of each profile, in the same order.

    Args:
        looks: the entry of each profile, where the caller knows: marks that are kept while others
            come and go. Left out, designs are numbered as they come, and profiles of one config
            share an entry, as prediction and measurement do.
    Raises:
        ValueError: there are looks, but not one a profile.
    """
    if looks:
        if len(looks) != len(profiles):
            raise ValueError(
                f"looks must name one design a profile; got {len(looks)} for {len(profiles)} profiles"
            )
        return list(looks)
    twins = [profile.twin for profile in profiles]
    keys: list[Config | int] = []  # the same for profiles that share an entry
    for number, profile in enumerate(profiles):
        if profile.config:
            keys.append(profile.config)
        elif profile.twin and twins.count(profile.twin) == 1:
            # a model of a person's own shares the entry of theory's twin; two models have their own
            keys.append(profile.twin)
        else:
            keys.append(number)
    distinct = list(dict.fromkeys(keys))
    labels = _labels([key if isinstance(key, Config) else None for key in distinct])
    indices = [distinct.index(key) for key in keys]
    return [
        LegendEntry(index, profile.config, labels[index])
        for index, profile in zip(indices, profiles, strict=True)
    ]


def _labels(configs: Sequence[Config | None]) -> list[str]:
    """A label for each design: its values of the one or two fields in which designs differ, else
    its number; empty for a design alone. None is a model without a config."""
    if len(configs) < 2:
        return ["" for _ in configs]
    numbered = [f"design {index + 1}" for index in range(len(configs))]
    complete = [config for config in configs if config is not None]
    if len(complete) < len(configs):
        return numbered
    differing = {
        name: spec.about.label.lower()
        for name, spec in Config.specs().items()
        if any(getattr(config, name) != getattr(complete[0], name) for config in complete)
    }
    if len(differing) > 2:
        return numbered
    return [
        ", ".join(
            f"{label} {_in_words(getattr(config, name))}" for name, label in differing.items()
        )
        for config in complete
    ]


def _in_words(value: object) -> str:
    """The value of a field in words: on, off, a number or a name."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
