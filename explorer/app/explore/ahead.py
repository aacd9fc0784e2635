"""`Ahead`: predictions for a slider that is dragged, of the steps that it comes to next.

Designs that differ in one number are predicted side by side: sixteen of them take three times as
long as one (see `theory.predict.predict_all`)."""

from __future__ import annotations

from collections import OrderedDict

from explorer.app.widgets.slider_steps import slider_steps
from explorer.choices import ConfigError
from explorer.config import Config, differences
from explorer.profile import Profile
from explorer.theory.predict import VARIED, predict_all, structure

STEPS = 16
"""Designs that are predicted at once; more would let a deep one's slider stand still for longer."""
FASTEST = 3
"""Steps of a move beyond which too few of these designs would be asked for: together they take as
long as three to four alone."""
KEPT = 64
"""Predictions that are kept."""


class Ahead:
    """`predict`, which looks ahead from the third design of a row that one slider goes through."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Config, Profile] = OrderedDict()
        self._last = Config()
        self._dragged = ""  # the only field in which the last two designs differ

    def __call__(self, config: Config) -> Profile:
        """The prediction of a design. Raises: as `predict`."""
        changed = differences(config, self._last)
        before, dragged, self._last = self._last, self._dragged, config
        self._dragged = changed[0] if len(changed) == 1 else ""
        if config not in self._kept:
            configs = [config]
            if self._dragged == dragged and dragged in VARIED:
                configs += steps_beyond(before, config, dragged)
            self._kept |= {configs[index]: profile for index, profile in predict_all(configs)}
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[config]


def steps_beyond(before: Config, config: Config, field: str) -> list[Config]:
    """The designs of the next steps of a slider that went from `before` to `config`, at most
    `STEPS` with `config`; none where they cannot be predicted side by side.

    Args:
        field: the slider's, one of `VARIED`.
    """
    common, steps = structure(config), slider_steps(Config.specs()[field])
    value, earlier = getattr(config, field), getattr(before, field)
    # a person's own number is no step of the slider
    if common is None or value not in steps or earlier not in steps:
        return []
    at = steps.index(value)
    moved = at - steps.index(earlier)
    if abs(moved) > FASTEST:
        return []
    following = steps[at + 1 :] if moved > 0 else steps[:at][::-1]
    designs = []
    for step in following[: STEPS - 1]:
        try:
            design = config.replace(**{field: step})
        except ConfigError:
            break  # the page refuses this step
        if structure(design) != common:
            break
        designs.append(design)
    return designs
