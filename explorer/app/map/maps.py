"""Maps that a button makes: a question each, with the design, the axes and the statistic that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from explorer.app.map.plan import Plan
from explorer.app.widgets.record import changed, record
from explorer.config import Config

SMALL: Mapping[str, Any] = MappingProxyType({"d_model": 64, "n_ctx": 32, "batch_size": 2, "n_seeds": 2})
"""Sizes of which a cell is measured within a tenth of a second or so."""


class Map(NamedTuple):
    """One map, as a row of data."""

    name: str
    title: str
    words: str
    """The question, and what to look for."""
    config: Config
    plan: Mapping[str, Any] = MappingProxyType({})
    """Fields of `Plan` that differ from the defaults."""

    def state(self) -> dict[str, Any]:
        """The record that the panel restores."""
        return record(design=changed(self.config), plan=changed(Plan(**self.plan)))


MAPS: Mapping[str, Map] = MappingProxyType({
    row.name: row
    for row in (
        Map("depth", "Depth × init variance",
            "Without norms and residuals a signal survives depth only near one variance: how near?",
            Config(norm_placement="none", residual="absent", **SMALL)),
        Map("alpha", "α × depth",
            "Without norms, which α keeps q near 1? Each branch adds up to α² q, so that the border falls as 1/√N.",
            Config(norm_placement="none", **SMALL),
            MappingProxyType({"x": "n_layers", "x_from": 1.0, "x_to": 96.0, "x_count": 18, "y": "alpha", "y_from": 0.0,
                              "y_to": 1.5, "y_count": 16})),
        Map("logits", "Logit scale × tokens",
            "Without √d: from which variance on does each token attend to one other alone, and do more tokens help?",
            Config(attention_scale="none", **SMALL),
            MappingProxyType({"x_from": 0.03, "x_to": 10.0, "y": "n_ctx", "y_from": 4.0, "y_to": 128.0,
                              "y_count": 12, "statistic": "attention_entropy_normalized"})),
        Map("training", "Learning rate × width",
            "Which learning rate trains which width? Trained, 100 steps a cell.",
            Config(n_layers=4, **SMALL),
            MappingProxyType({"x": "learning_rate", "x_from": 1e-4, "x_to": 0.1, "x_count": 10, "y": "d_model",
                              "y_from": 16.0, "y_to": 128.0, "y_count": 6, "statistic": "loss_drop",
                              "compute": "trained"})),
    )
})
"""Maps by name, in the order of their buttons; the page opens with the first."""
FIRST_DESIGN = next(iter(MAPS.values())).config
