"""The controls: one widget, generated from the specs of any `Choices`, whose values become one or a refusal in words.

The browser draws native controls (`controls.js`): sliders with an entry beside them, segmented choices, lists,
switches. What it sends back is one trait, `values`, and is only a suggestion: the `Choices` decide. A refused value
stays where the person put it, beside the sentence that says why, and `config` stays what it last was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import anywidget
import traitlets

from explorer.app.widgets.ladder import ladder
from explorer.app.widgets.source import source
from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.fields import GROUPS, Option, Spec, users
from explorer.numbers import percent

PINNED = ("n_layers", "d_model", "init_variance", "norm_placement", "alpha", "attention_scale")
"""The order on top; a pinned field that is not named here follows."""
SEGMENTS = 5
"""Choices of up to so many options are shown side by side when their words are short."""
SEGMENT_LETTERS = 26
Chosen = TypeVar("Chosen", bound=Choices)
GPT2_SMALL = Config(n_layers=12, d_model=768, n_heads=12).sizes.n_parameters


class ControlBox(anywidget.AnyWidget):
    """Native controls for a list of sections; knows nothing of what the values mean.

    Traits:
        sections: `[{title, fields: [...]}]`; a section with a title can be folded. See `describe` for a field.
        values: field name to value, from either side.
        notes: field name to a line below the control: why it is disabled or refused.
        disabled, refused: names of the fields in that state.
        summary: a line below all of them.
        offers: field name to buttons below its control, `[{label, title}]`; a click is the message `[name, index]`.
    """

    _esm = source("widgets/moves.js", "widgets/typeset.js", "widgets/controls.js")
    sections = traitlets.List(traitlets.Dict()).tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    notes = traitlets.Dict().tag(sync=True)
    disabled = traitlets.List(traitlets.Unicode()).tag(sync=True)
    refused = traitlets.List(traitlets.Unicode()).tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)
    offers = traitlets.Dict().tag(sync=True)
    label = traitlets.Unicode("Controls").tag(sync=True)


class Controls(ControlBox, Generic[Chosen]):
    """Every field of a `Choices`, and the last one that they made.

    Args:
        config: where they start; its class decides what is accepted.
        on_read: called after each change, with `config`, `refusal` and `remedy` (what `mend` would do) up to date.
        offers: what can be asked for beside a field: name to `[{label, title}]`.
        on_offer: called with a field's name and the index of the offer that was taken.
        label: what the controls are for, said to a screen reader.
    """

    def __init__(
        self,
        config: Chosen,
        on_read: Callable[[], None] = lambda: None,
        offers: Mapping[str, list[dict[str, str]]] = MappingProxyType({}),
        on_offer: Callable[[str, int], None] = lambda name, index: None,
        label: str = "Design of the Transformer",
    ) -> None:
        super().__init__(sections=sections(config.specs()), label=label, offers=dict(offers))
        self._offers = self.offers
        self._remarks: dict[str, tuple[object, str, list[dict[str, str]]]] = {}
        self._mend: dict[str, object] = {}
        self._on_offer = on_offer
        self.on_msg(self._take)
        self.config = config
        self.refusal = self.remedy = ""
        self._on_read = on_read
        self.apply(config.model_dump())
        self._explain()
        self.observe(self._read, names="values")

    def apply(self, changes: Mapping[str, object]) -> None:
        """Changes some choices of the last accepted config, as if a person had set them."""
        self.values = {**self.config.model_dump(), **changes}

    def mend(self) -> None:
        """Makes the one change after which the refused choices are accepted, where there is one."""
        self.values = {**self.values, **self._mend}

    def remark(self, name: str, words: str, *offers: dict[str, str]) -> None:
        """A line below a control, and offers after its others, until its value changes."""
        self._remarks[name] = (self.values.get(name), words, list(offers))
        self._explain()

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a click on an offer; a message that names no offer is ignored."""
        match content:
            case [str() as name, int() as index] if 0 <= index < len(self.offers.get(name, ())):
                self._on_offer(name, index)

    def _read(self, _: object = None) -> None:
        try:
            config = type(self.config)(**self.values)
        except ConfigError as error:
            self.refusal, self._mend = said(error), self._suggested(error)
        else:
            self.config, self.refusal, self._mend = config, "", {}
            if self.values != config.model_dump():
                self.values = config.model_dump()  # a number that was written as "1_000"; which is read in turn
                return
        specs = self.config.specs()
        self.remedy = "".join(f"Set {specs[name].about.label} to {shown(value)}" for name, value in self._mend.items())
        self._explain()
        self._on_read()

    def _suggested(self, error: ConfigError) -> dict[str, object]:
        """The first change that ends a refusal without touching the latest choice."""
        good = self.config.model_dump()
        for name, value in error.mend.items():
            if self.values.get(name) == good.get(name) and accepted(type(self.config), {**self.values, name: value}):
                return {name: value}
        return {}

    def _explain(self) -> None:
        good = self.config.model_dump()
        specs = self.config.specs()
        idle = {name: reason for name, item in specs.items() if (reason := unused(item, self.config))}
        refused = [name for name, value in self.values.items() if self.refusal and value != good.get(name)]
        said = {name: rest for name, (value, *rest) in self._remarks.items() if self.values.get(name) == value}
        remarks = {name: words for name, (words, _) in said.items()}
        more = {name: [*self._offers.get(name, []), *offers] for name, (_, offers) in said.items() if offers}
        with self.hold_sync():
            self.disabled = [name for name in idle if name not in refused]
            self.refused = refused
            wrong = {name: f"refused; still {shown(good.get(name))}" for name in refused}
            self.notes = {**remarks, **idle, **wrong}
            self.offers = {**self._offers, **more}
            self.summary = size(self.config) if isinstance(self.config, Config) else ""


def sections(specs: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Fields in the order of the page: those pinned or of no group without a title, then group by group."""
    top = [name for name in specs if specs[name].about.pinned or not specs[name].about.group]
    pinned = sorted(top, key=lambda name: (*PINNED, name).index(name))
    titles = dict.fromkeys((*GROUPS, *(specs[name].about.group for name in specs if name not in pinned)))
    groups = {title: [n for n in specs if specs[n].about.group == title and n not in pinned] for title in titles}
    return [
        {"title": title, "fields": [describe(specs[name]) for name in names]}
        for title, names in {"": pinned, **groups}.items()
        if names
    ]


def describe(spec: Spec) -> dict[str, Any]:
    """One control as the browser draws it."""
    steps = ladder(spec)
    return {
        "name": spec.name,
        "look": look(spec, steps),
        "label": spec.about.label,
        "symbol": "" if spec.about.symbol in spec.about.label.split() else spec.about.symbol,
        "unit": spec.about.unit,
        "description": f"{spec.description} {spec.rule()[0].upper()}{spec.rule()[1:]}.",
        "initial": spec.default,
        "steps": steps,
        "options": [
            {"value": choice, "label": shown(choice), "formula": option.formula, "source": option.source}
            for choice in spec.choices for option in [spec.about.options.get(choice, Option(""))]
        ],
    }


def choice(name: str, label: str, description: str, options: Sequence[Mapping[str, str]], initial: str
           ) -> dict[str, Any]:
    """A list that stands for no field of a record, as `controls.js` draws it.

    Args:
        options: `[{value, label}]`, and a `formula` and a `source` for the line below where there are any.
    """
    return {
        "name": name, "look": "list", "label": label, "symbol": "", "unit": "", "description": description,
        "initial": initial, "steps": [], "options": [{"formula": "", "source": "", **option} for option in options],
    }


def look(spec: Spec, steps: Iterable[float]) -> str:
    """Native control of a field: slider, entry, switch, segments or list."""
    if spec.kind in ("integer", "number"):
        return "slider" if steps else "entry"
    if spec.kind == "switch":
        return "switch"
    short = sum(len(shown(choice)) for choice in spec.choices) <= SEGMENT_LETTERS
    return "segments" if short and len(spec.choices) <= SEGMENTS else "list"


def shown(value: object) -> str:
    """A value in words: `inverse_sqrt_depth` is 1/√depth."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, str):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value.replace("inverse_", "1/").replace("sqrt_", "√").replace("sqrt", "√").replace("_", " ")


def said(error: ConfigError) -> str:
    """A refusal in the page's words: fields by their labels, values as the controls show them."""
    return "".join(
        part if isinstance(part, str) else part.label if part.value is None else f"{part.label} = {shown(part.value)}"
        for part in error.parts
    )


def accepted(kind: type[Choices], values: Mapping[str, Any]) -> bool:
    """Whether choices of this kind can have such values."""
    try:
        kind(**values)
    except ConfigError:
        return False
    return True


def unused(spec: Spec, config: Choices) -> str:
    """The reason why a field does not matter with these choices; empty when it does."""
    specs = config.specs()
    for other, values in users(specs, spec.name).items():
        if getattr(config, other) not in values:
            wanted = " or ".join(shown(value) for value in values)
            return f"used when {specs[other].about.label.lower()} = {wanted}; it is {shown(getattr(config, other))}"
    return ""


def size(config: Config) -> str:
    """Parameters and memory of a config, in a line."""
    sizes = config.sizes
    parameters, share = sizes.n_parameters, sizes.n_parameters / GPT2_SMALL
    return (
        f"{quantity(parameters)} parameters · {percent(share)} of GPT-2 small's {quantity(GPT2_SMALL)} · "
        f"{quantity(sizes.activation_bytes)}B of activations{', computed twice' if sizes.block else ''}"
    )


def quantity(count: float) -> str:
    """Two digits and a decimal prefix: 9.4 M."""
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.{1 if count < 10 * scale else 0}f} {prefix}"
    return f"{count:.0f}"
