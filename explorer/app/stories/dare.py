"""`Daring`: on a first visit a switch that changes the design, beside its effect on one number."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import traitlets

from explorer.app.explore.panel import Explore
from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.glossary import rows
from explorer.numbers import number
from explorer.profile import Profile
from explorer.vocabulary import Array

CELLS = 16
"""Tokens whose attention to each other is drawn, from the first."""
MOST_TOKENS = 256
"""Most tokens of a sequence whose attention is drawn at random."""
LARGEST = float(np.finfo(np.float32).max)
"""The end of the scale of second moments."""


class Dare(NamedTuple):
    """One change of a design; the keys of a table `dare` in `stories.toml`."""

    label: str
    """Of the switch."""
    words: str
    title: str
    """The number that it is about."""
    scale: str
    """The ends of that number's bar, in words."""
    statistic: str
    changes: Mapping[str, Any]

    def is_on(self, config: Config) -> bool:
        """Whether a design has the change."""
        return all(getattr(config, name) == value for name, value in self.changes.items())

    def number_of(self, profile: Profile | None) -> dict[str, Any]:
        """The number of a profile: `share` of its bar, from 0 to 1, and `words`; empty without
        one."""
        if profile is None:
            return {}
        if self.statistic == "second_moment":
            return _last_moment(profile)
        entropy = float(np.median(profile[self.statistic][:, 0]))
        return {"share": entropy, "words": f"{entropy:.2f}"} if np.isfinite(entropy) else {}


DARES = tuple(Dare(**row) for row in rows(Path(__file__).with_name("stories.toml"), "dare"))


def _last_moment(profile: Profile) -> dict[str, Any]:
    """The second moment after the last layer, or the first layer at which float32 has none."""
    moments = profile["second_moment", "resid_post"].mean(axis=0)  # [layer]
    lost = np.flatnonzero(~(moments <= LARGEST))  # nan is lost, too
    if lost.size:
        return {"share": 1.0, "words": f"overflows in layer {lost[0] + 1}"}
    share = np.log(max(moments[-1], 1.0)) / np.log(LARGEST)
    return {"share": float(share), "words": number(moments[-1])}


def weights(spread: float, tokens: int) -> Array:
    """Attention weights `[query, key]` of logits that are drawn at random with a standard
    deviation; the same draw each time."""
    logits = spread * np.random.default_rng(0).normal(size=(tokens, tokens))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def shades(pattern: Array) -> list[int]:
    """The first cells of attention weights, row by row, as per cent of opacity: their square roots,
    so that a uniform pattern is seen."""
    shares = np.sqrt(np.nan_to_num(pattern[:CELLS, :CELLS]))
    return [round(100 * float(share)) for share in shares.ravel()]


class Card(Part):
    """The switch and the number.

    Traits:
        dare: `{label, words, title, scale, number, count}` of the one that is offered.
        on: whether the design has its change.
        tried: whether the switch was moved.
        predicted, measured: the number, `{share, words}`; empty where there is none yet.
        pattern: opacity of the cells of an attention pattern, in per cent, row by row.
        origin: of the pattern: `predicted` or `measured`.

    Messages are lists: `["switch", on]`, `["next"]` and `["close"]`."""

    view = "dare"
    dare = traitlets.Dict().tag(sync=True)
    on = traitlets.Bool(False).tag(sync=True)
    tried = traitlets.Bool(False).tag(sync=True)
    predicted = traitlets.Dict().tag(sync=True)
    measured = traitlets.Dict().tag(sync=True)
    pattern = traitlets.List(traitlets.Int()).tag(sync=True)
    origin = traitlets.Unicode().tag(sync=True)


class Daring:
    """The card, and the actions of its buttons; hidden until a panel is joined."""

    def __init__(self) -> None:
        self.card = Card(hidden=True)
        self.card.on_msg(lambda _, content, __: self.act(content))
        self._number = 0
        self._before = Config()
        """The last design without the dare's change: that is what it is put back to."""
        self._is_dared = False
        """Whether the design is the dare's, or was moved on from it."""
        self._explore: Explore | None = None

    @property
    def dare(self) -> Dare:
        """The one that is offered."""
        return DARES[self._number]

    def join(self, explore: Explore) -> None:
        """Offers the dares on a panel."""
        self._explore = explore
        self.show(beside_explore=True)
        self._offer(0)
        explore.controls.observe(self._follow, names="values")
        explore.charts["second_moment"].observe(self._follow, names="figure")

    def show(self, *, beside_explore: bool) -> None:
        """Shows the card while its panel is open, until it is closed."""
        self.card.hidden = self._explore is None or not beside_explore

    def leave(self) -> None:
        """Offers nothing any more; the design stays."""
        if self._explore:
            self._explore.controls.unobserve(self._follow, names="values")
            self._explore.charts["second_moment"].unobserve(self._follow, names="figure")
        self._explore, self.card.hidden = None, True

    def act(self, message: object) -> None:
        """Handles a message of the card; believes none of them."""
        if self._explore is None:
            return
        match message:
            case ["switch", True]:
                self._explore.controls.apply(self.dare.changes)
                self.card.tried = True
            case ["switch", False]:
                self._put_back()
            case ["next"] if self._number + 1 < len(DARES):
                self._put_back()
                self._offer(self._number + 1)
            case ["close"]:
                self._put_back()
                self.leave()

    def _put_back(self) -> None:
        """Takes the change back, to the design before it, wherever its fields were moved since."""
        if self._explore and self._is_dared:
            self._explore.controls.apply(
                {name: getattr(self._before, name) for name in self.dare.changes}
            )

    def _offer(self, index: int) -> None:
        self._number, self._is_dared, self.card.tried = index, False, False
        dare = self.dare
        self.card.dare = {
            "label": dare.label,
            "words": dare.words,
            "title": dare.title,
            "scale": dare.scale,
            "number": index + 1,
            "count": len(DARES),
        }
        self._follow()

    def _note(self, config: Config) -> None:
        """Notes whether a design has the dare's change, or what it was before."""
        if self.dare.is_on(config):
            self._is_dared = True
        elif all(
            getattr(config, name) == getattr(self._before, name) for name in self.dare.changes
        ):
            self._is_dared = False
        if not self._is_dared:
            self._before = config

    def _follow(self, _: object = None) -> None:
        """Reads the page: theory's number at once, the measured one once it is there."""
        if self._explore is None:
            return
        config, schedule = self._explore.controls.config, self._explore.schedule
        line, dots = schedule.prediction, schedule.dots
        predicted = line if line and line.config == config else None
        measured = dots if dots and dots.config == config else None
        self._note(config)
        card = self.card
        card.on = self._is_dared
        card.predicted, card.measured = (
            self.dare.number_of(predicted),
            self.dare.number_of(measured),
        )
        if self.dare.statistic == "second_moment":
            card.pattern = []  # attention is not its subject
        elif measured and measured.pattern is not None:
            card.pattern, card.origin = shades(measured.pattern), measured.origin
        elif predicted and config.design.attends:
            spread = float(predicted["logit_std"][:, 0].mean())
            card.pattern = shades(weights(spread, min(config.n_ctx, MOST_TOKENS)))
            card.origin = predicted.origin


def still(predicted: Profile) -> str:
    """The first card as HTML, with the theory's number of a design, until the live one comes."""
    dare = DARES[0]
    expected = dare.number_of(predicted)
    label, words, title, scale = map(html.escape, (dare.label, dare.words, dare.title, dare.scale))
    return (
        '<section class="ex-dare-box"><div class="ex-dare-ask"><button class="ex-dare-switch" role="switch" '
        f'aria-checked="false"><span class="ex-dare-knob"></span>{label}</button><p>{words}</p></div>'
        '<span class="ex-dare-pattern"></span>'
        f'<div class="ex-dare-number"><b>{title}</b> <small>{scale}</small><div class="ex-dare-bar">'
        f'<span class="ex-dare-tick" style="left:{100 * expected["share"]:.1f}%"></span></div>'
        f"<p>predicted: {expected['words']}</p></div>"
        '<div class="ex-dare-tools"><button class="ex-link">Close</button></div></section>'
    )
