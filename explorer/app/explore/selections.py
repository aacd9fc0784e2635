"""Lists and sliders of the Explore panel beside its controls: the named design, and the choices of three charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from explorer.app.design_names import change_words
from explorer.app.widgets.controls import choice, describe
from explorer.app.widgets.selection import Field, Selection
from explorer.config import Config
from explorer.fields import About, Spec
from explorer.figures import BY_CHOICE
from explorer.glossary import cited
from explorer.presets import changes_to, matching
from explorer.profile import MATRICES, VECTORS
from explorer.schemes.preset import PRESETS

CUSTOM, ALL = "custom", "all"
MANY_LAYERS = 64
"""Layers beyond which the slider becomes logarithmic."""
MATRIX_WORDS = dict(zip((*MATRICES, *VECTORS), (
    "queries", "keys", "values", "attention gates", "attention output", "MLP gate", "MLP input", "MLP output",
    "attention sink", "residual α", "mix of streams"), strict=True))
"""Words, for a list cannot show W_Q with its Q below the line."""


def named_options() -> list[dict[str, str]]:
    """The named designs as options of a list to search in; below it stand a design's words, source and differences."""
    return [{"value": name, "label": row.title, "formula": row.words.rstrip("."), "group": group,
             "source": cited(row.source) + f"\nDiffers: {row.differs}" * bool(row.differs),
             "find": " ".join((name, row.title, row.words, row.source, row.aliases))}
            for group, name, row in PRESETS.grouped()]


class NamedDesigns(Selection):
    """The list of named designs. It follows the controls: it shows which one they make, or that it is none.

    Args:
        config: the design at first.
        apply: called with the changes that make the chosen design of any config.
    """

    def __init__(self, config: Config, apply: Callable[[dict[str, object]], None]) -> None:
        super().__init__("Named design", self._take)
        self._apply = apply
        rows = [{"value": CUSTOM, "label": CUSTOM, "formula": "None of the named designs."}, *named_options()]
        about = "A model or a named design: sets all that makes it one; sizes, input, loss and seeds stay."
        self._config, self.followed = config, matching(config) or CUSTOM
        field = choice("preset", "Model or design", about, rows, matching(Config()), "search")
        self.offer([field], preset=self.followed)

    def follow(self, config: Config) -> None:
        """Shows the named design that a config is, and what choosing it changed for as long as it is that one."""
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
    """Layer and head, each from 1, of the attention pattern that is shown, within the bounds of a config.

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

    @property
    def record(self) -> dict[str, int]:
        """Layer and head for `restore`."""
        return dict(zip(("layer", "head"), self.pattern_of, strict=True))

    def restore(self, values: object) -> list[str]:
        """Shows the layer and head of a record, see `Selection.restore`."""
        if isinstance(values, Mapping) and type(head := values.get("head")) is int:
            values = {**values, "head": head + 1}
        return super().restore(values)

    def within(self, config: Config) -> tuple[int, int]:
        """Layer and head as `fit` will have them."""
        layer, head = self.pattern_of
        return min(layer, config.n_layers), min(head, config.n_heads - 1)

    def fit(self, config: Config) -> None:
        """Takes the bounds of another config; a choice beyond them moves to the last one."""
        layers = config.n_layers
        self.layout.display = None if config.design.attends else "none"  # then there is nothing to choose
        specs = (
            Spec("layer", "integer", 1, "Layer whose attention is shown.",
                 About("Layer", "Attention", log=layers > MANY_LAYERS), 1, layers),
            Spec("head", "integer", 1, "Head whose attention is shown.", About("Head", "Attention"), 1, config.n_heads),
        )
        layer, head = self.within(config)
        self.offer([describe(spec) for spec in specs], layer=layer, head=head + 1)


class ListSelection(Selection):
    """A single list, as `choice` has it; `value` is what is chosen."""

    def __init__(self, label: str, field: Field, on_choice: Callable[[], None]) -> None:
        super().__init__(label, on_choice)
        self._name = field["name"]
        self.offer([field], **{self._name: field["initial"]})

    @property
    def value(self) -> str:
        """The chosen row's."""
        chosen: str = self.chosen[self._name]
        return chosen

    def restore(self, value: object) -> list[str]:
        """Chooses the row of this value, see `Selection.restore`."""
        return super().restore({self._name: value})


def matrix_list(on_choice: Callable[[], None]) -> ListSelection:
    """The matrix whose gradient is compared, where several designs are drawn together; `ALL` for all of a layer."""
    rows = [{"value": ALL, "label": "all of a layer together"},
            *({"value": name, "label": words, "formula": name} for name, words in MATRIX_WORDS.items())]
    about = "Matrix whose gradient is drawn for each design; all together: √Σ‖∂L/∂W‖²."
    return ListSelection("Gradient compared", choice("matrix", "Matrix", about, rows, ALL), on_choice)


def statistic_list(on_choice: Callable[[], None]) -> ListSelection:
    """The statistic on the first card."""
    rows = [{"value": row.name, "label": row.title} for row in BY_CHOICE.values()]
    field = choice("statistic", "Show", "Statistic that this chart shows.", rows, rows[0]["value"])
    return ListSelection("Statistic shown", field, on_choice)
