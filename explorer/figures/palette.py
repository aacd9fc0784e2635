"""Hues, symbols and dashes: fixed by the design, the same in every figure.

Colors never carry meaning alone: a design has its symbol and its dash too, so that a figure
survives a black-and-white printer and every kind of color vision."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

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


class MatrixMark(NamedTuple):
    """Marks of one weight matrix, and the place of its hue in `HUES` where no design needs hues."""

    symbol: str
    dash: str
    hue: int


MATRIX_MARKS: Mapping[str, MatrixMark] = MappingProxyType(
    {
        # One shape a pair that works together; full for the one that is applied first, hollow for
        # the other. Six hues.
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
    """Marks of one thing among those drawn together."""

    index: int

    @property
    def hue(self) -> str:
        """Color of lines and dots, `#rrggbb`."""
        return HUES[self.index % len(HUES)]

    @property
    def symbol(self) -> str:
        """Symbol of its dots, shifted at each round of the hues: hue and symbol together are unique
        up to 36."""
        return SYMBOLS[(self.index + self.index // len(HUES)) % len(SYMBOLS)]

    @property
    def dash(self) -> str:
        """Dash of its lines."""
        return DASHES[(self.index + self.index // len(HUES)) % len(DASHES)]

    def faint(self, opacity: float) -> str:
        """Its hue, see-through: the color of a band."""
        red, green, blue = (int(self.hue[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red}, {green}, {blue}, {opacity:g})"


@dataclass(frozen=True)
class LegendEntry(Look):
    """One experiment among those drawn together, and the marks it keeps in every figure."""

    config: Config | None
    label: str
    """Its differences from the others; empty when it is alone."""

    @property
    def heading(self) -> str:
        """The label, escaped for plotly: a person may have named it `<b>` or `%{x}`."""
        return html.escape(self.label, quote=False).replace("%{", "%\u200b{")

    def named(self, words: str) -> str:
        """The heading with words after it, such as "predicted"; the words alone where it is
        empty."""
        return f"{self.heading}, {words}" if self.heading else words


def designs(profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> list[LegendEntry]:
    """The design of each profile, in the same order.

    Args:
        looks: the design of each profile, where the caller knows: marks that are kept while others
            come and go. Left out, designs are numbered as they come: profiles of one config share
            one; a model that is not ours shares its twin's, where no other does.
    Raises:
        ValueError: as many designs are wanted as there are profiles, or none.
    """
    if looks:
        if len(looks) != len(profiles):
            raise ValueError(
                f"looks must name one design a profile; got {len(looks)} for {len(profiles)} profiles"
            )
        return list(looks)
    twins = [profile.twin for profile in profiles]
    keys = [
        profile.config
        or (profile.twin if profile.twin and twins.count(profile.twin) == 1 else number)
        for number, profile in enumerate(profiles)
    ]
    own = list(dict.fromkeys(keys))
    labels = _labels([key if isinstance(key, Config) else None for key in own])
    return [
        LegendEntry(own.index(key), profile.config, labels[own.index(key)])
        for key, profile in zip(keys, profiles, strict=True)
    ]


def _labels(configs: Sequence[Config | None]) -> list[str]:
    """Differences of each config: the one or two fields they differ in, else their number."""
    if len(configs) < 2:
        return ["" for _ in configs]
    numbered = [f"design {index + 1}" for index in range(len(configs))]
    known = [config for config in configs if config is not None]
    if len(known) < len(configs):
        return numbered
    fields = [
        (spec.about.label, name)
        for name, spec in Config.specs().items()
        if any(getattr(config, name) != getattr(known[0], name) for config in known)
    ]
    if len(fields) > 2:
        return numbered
    return [
        ", ".join(f"{label.lower()} {_shown(getattr(config, name))}" for label, name in fields)
        for config in known
    ]


def _shown(value: object) -> str:
    """A choice in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
