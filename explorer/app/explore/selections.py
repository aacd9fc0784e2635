"""Lists and sliders that choose among what there is at the moment: the named design, what a chart
shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from explorer.app.sentences import change_words
from explorer.app.widgets.controls import ControlBox, choice, describe
from explorer.app.widgets.parts import together
from explorer.config import Config, changes_to, matching
from explorer.fields import About, Spec
from explorer.figures import BY_CHOICE
from explorer.glossary import cited
from explorer.schemes.preset import PRESETS
from explorer.sites import MATRICES, VECTORS

Field = Mapping[str, Any]
"""A control, as `choice` or `describe` makes it."""


class Selection(ControlBox):
    """Some controls, each with a value that is always one of those offered.

    A browser's choice in a list that has no such option is ignored; a number that somebody typed
    and that is out of range is refused in words, and stays where it was typed.

    Args:
        label: of the choice, for a screen reader.
        on_choice: called after `chosen` or `refusal` has changed.
    """

    def __init__(self, label: str, on_choice: Callable[[], None] = lambda: None) -> None:
        super().__init__(label=label)
        self.chosen: dict[str, Any] = {}
        self.refusal = ""
        self._fields: list[Field] = []
        self._on_choice = on_choice
        self.observe(self._read, names="values")

    def offer(self, fields: Sequence[Field], **chosen: object) -> None:
        """Replaces the controls and their values."""
        with together():
            if list(fields) != self._fields:
                self._fields = list(fields)
                self.sections = [{"title": "", "fields": self._fields}]
            self.show(**chosen)

    def show(self, **chosen: object) -> None:
        """Changes what is chosen, as if it had never been otherwise; also takes back what was
        refused."""
        self.chosen |= chosen
        self.values = dict(self.chosen)
        self._refuse({})

    def _read(self, _: object = None) -> None:
        """Reads a person's choice."""
        reasons, before = self._reasons(self.values), self.refusal
        self._refuse(
            {
                field["name"]: reasons[field["name"]]
                for field in self._fields
                if field["steps"] and field["name"] in reasons
            }
        )
        if self.refusal:
            self._on_choice()
            return
        chosen = {
            name: old if name in reasons else self.values[name] for name, old in self.chosen.items()
        }
        changed, self.chosen = chosen != self.chosen, chosen
        self.values = dict(chosen)
        if changed or before:
            self._on_choice()

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        self.refusal, self.refused = "; ".join(reasons.values()), list(reasons)

    def _reasons(self, values: Mapping[str, object]) -> dict[str, str]:
        """The values that are not offered, by field, each with a sentence."""
        reasons = {}
        for field in self._fields:
            value, options, steps = values.get(field["name"]), field["options"], field["steps"]
            names = [option["value"] for option in options]
            rule = (
                f"one of {', '.join(names)}"
                if options
                else f"a whole number between {steps[0]} and {steps[-1]}"
            )
            if not (
                value in names if options else type(value) is int and steps[0] <= value <= steps[-1]
            ):
                reasons[field["name"]] = f"{field['label']} must be {rule}; got {str(value)[:80]!r}"
        return reasons


CUSTOM, ALL = "custom", "all"
MANY_LAYERS = 64
"""Layers beyond which the slider becomes logarithmic."""
MATRIX_WORDS = dict(
    zip(
        (*MATRICES, *VECTORS),
        (
            "queries",
            "keys",
            "values",
            "attention gates",
            "attention output",
            "MLP gate",
            "MLP input",
            "MLP output",
            "attention sink",
            "residual α",
            "mix of streams",
        ),
        strict=True,
    )
)
"""Words, for a list cannot show W_Q with its Q below the line."""


def named_options() -> list[dict[str, str]]:
    """The named designs as options of a list to search in; below it stand a design's words, source
    and differences."""
    return [
        {
            "value": name,
            "label": row.title,
            "formula": row.words.rstrip("."),
            "group": group,
            "source": cited(row.source) + f"\nDiffers: {row.differs}" * bool(row.differs),
            "find": " ".join((name, row.title, row.words, row.source, row.aliases)),
        }
        for group, name, row in PRESETS.grouped()
    ]


class NamedDesigns(Selection):
    """The list of named designs. It follows the controls: it shows which one they make, or that it
    is none.

    Args:
        config: the design at first.
        apply: called with the changes that make the chosen design of any config.
    """

    def __init__(self, config: Config, apply: Callable[[dict[str, object]], None]) -> None:
        super().__init__("Named design", self._take)
        self._apply = apply
        rows = [
            {"value": CUSTOM, "label": CUSTOM, "formula": "None of the named designs."},
            *named_options(),
        ]
        about = "A model or a named design: sets all that makes it one; sizes, input, loss and seeds stay."
        self._config, self.followed = config, matching(config) or CUSTOM
        field = choice("preset", "Model or design", about, rows, matching(Config()), "search")
        self.offer([field], preset=self.followed)

    def follow(self, config: Config) -> None:
        """Shows the named design that a config is, and what choosing it changed for as long as it
        is that one."""
        followed, before = matching(config) or CUSTOM, self.followed
        self._config, self.followed = config, followed
        if followed != before:
            self.changes = {}
        self.show(preset=self.followed)

    def _take(self) -> None:
        if (wanted := self.chosen["preset"]) != CUSTOM:
            before = self._config
            self._apply(changes_to(wanted))  # which calls `follow` where it is accepted
            self.changes = {"preset": change_words(before, self._config)}
        self.show(preset=self.followed)


class PatternSelection(Selection):
    """Layer and head, each from 1, of the attention pattern that is shown, within the bounds of a
    config.

    Records and links count heads from 0, as `measure` does.
    """

    def __init__(self, config: Config, on_choice: Callable[[], None]) -> None:
        super().__init__("Attention pattern shown", on_choice)
        self.chosen = {"layer": 1, "head": 1}
        self.fit(config)

    @property
    def pattern_of(self) -> tuple[int, int]:
        """Layer and head, as arguments of `measure`."""
        return self.chosen["layer"], self.chosen["head"] - 1

    def restore(self, pattern_of: tuple[int, int]) -> None:
        """Shows this layer and head."""
        layer, head = pattern_of
        self.values = {"layer": layer, "head": head + 1}

    def within(self, config: Config) -> tuple[int, int]:
        """Layer and head as `fit` will have them."""
        layer, head = self.pattern_of
        return min(layer, config.n_layers), min(head, config.n_heads - 1)

    def fit(self, config: Config) -> None:
        """Takes the bounds of another config; a choice beyond them moves to the last one."""
        layers = config.n_layers
        self.hidden = not config.design.attends  # then there is nothing to choose
        specs = (
            Spec(
                "layer",
                "integer",
                1,
                "Layer whose attention is shown.",
                About("Layer", "Attention", log=layers > MANY_LAYERS),
                1,
                layers,
            ),
            Spec(
                "head",
                "integer",
                1,
                "Head whose attention is shown.",
                About("Head", "Attention"),
                1,
                config.n_heads,
            ),
        )
        layer, head = self.within(config)
        self.offer([describe(spec) for spec in specs], layer=layer, head=head + 1)


class LayerSelection(Selection):
    """The layer, from 1, whose tokens a chart by position has; it stays the last one until another
    is chosen."""

    def __init__(self, config: Config, on_choice: Callable[[], None]) -> None:
        super().__init__("Layer whose tokens are shown", on_choice)
        self._last, self.chosen = config.n_layers, {"layer": config.n_layers}
        self.fit(config)

    @property
    def value(self) -> int:
        """The layer; 0 is the last."""
        return int(self.chosen["layer"]) % self._last

    def restore(self, value: int) -> None:
        """Shows this layer."""
        self.values = {"layer": value or self._last}

    def fit(self, config: Config) -> None:
        """Takes the bounds of another config."""
        value, self._last = self.value, config.n_layers
        about = About("Layer", "Tokens", log=self._last > MANY_LAYERS)
        spec = Spec(
            "layer", "integer", self._last, "Layer whose tokens are shown.", about, 1, self._last
        )
        self.offer([describe(spec)], layer=min(value or self._last, self._last))


class ListSelection(Selection):
    """A single list below a chart; `value` is what is chosen, at first the first row.

    Args:
        label: of the choice, for a screen reader.
        field: as `choice` takes it: name, words beside the list, and description.
        rows: `[{value, label}]`, and a `formula` where there is one.
        on_choice: called after another row was chosen.
    """

    def __init__(
        self,
        label: str,
        field: tuple[str, str, str],
        rows: Sequence[Mapping[str, str]],
        on_choice: Callable[[], None],
    ) -> None:
        super().__init__(label, on_choice)
        self._name = field[0]
        self.offer([choice(*field, rows, rows[0]["value"])], **{self._name: rows[0]["value"]})
        self.add_class("ex-place")

    @property
    def value(self) -> str:
        """The chosen row's."""
        chosen: str = self.chosen[self._name]
        return chosen

    def restore(self, value: str) -> None:
        """Chooses the row of this value, as a person would."""
        self.values = {self._name: value}


def matrix_list(on_choice: Callable[[], None]) -> ListSelection:
    """The matrix whose gradient is compared, where several designs are drawn together; `ALL` for
    all of a layer."""
    rows = [
        {"value": ALL, "label": "all of a layer together"},
        *({"value": name, "label": words, "formula": name} for name, words in MATRIX_WORDS.items()),
    ]
    about = "Matrix whose gradient is drawn for each design; all together: √Σ‖∂L/∂W‖²."
    return ListSelection("Gradient compared", ("matrix", "Matrix", about), rows, on_choice)


def statistic_list(on_choice: Callable[[], None]) -> ListSelection:
    """The statistic on the first card."""
    rows = [{"value": row.name, "label": row.title} for row in BY_CHOICE.values()]
    return ListSelection(
        "Statistic shown",
        ("statistic", "Show", "Statistic that this chart shows."),
        rows,
        on_choice,
    )
