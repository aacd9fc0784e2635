"""The controls: one widget, generated from the specs of any `Choices`, whose values become one or a
refusal in words.

The browser draws native controls (`controls.js`): sliders with an entry beside them, segmented
choices, lists, switches. What it sends back is one trait, `values`, and is only a suggestion: the
`Choices` decide. A refused value stays where the person put it, beside the sentence that says why,
and `config` stays what it last was. An option that would be refused is dimmed, with the reason;
whoever chooses it all the same gets the refusal and a fix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import traitlets

from explorer.app.view import View, label
from explorer.app.widgets.parts import Part, together
from explorer.app.widgets.slider_steps import slider_steps
from explorer.app.widgets.wording import (
    exclusions,
    fix,
    idle,
    in_words,
    refusal_in_words,
    remedy_in_words,
    size_in_words,
    usual_in_words,
)
from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.fields import GROUPS, Option, Spec
from explorer.glossary import cited, term_of
from explorer.translation import translated

PINNED = ("n_layers", "d_model", "init_variance", "norm_placement", "alpha", "attention_scale")
"""The order on top; a pinned field that is not named here follows."""
SEGMENTS = 5
"""Choices of up to so many options are shown side by side when their words are short."""
SEGMENT_LETTERS = 26
DRAG, HELD = 0.15, 0.45
"""Seconds between two changes, up to which a slider is dragged, and after the last, until it rests:
the second of them while it is held, for on a machine that is busy drawing changes come no
faster."""
Chosen = TypeVar("Chosen", bound=Choices)


class ControlBox(Part):
    """Native controls for a list of sections; knows nothing of what the values mean.

    Traits:
        sections: `[{title, fields: [...]}]`; a section with a title can be folded. See `describe`
            for a field.
        values: field name to value, from either side.
        notes: field name to a line below the control: why it is disabled or refused.
        excluded: field name to the options that the other choices exclude; see `Exclusion`.
        disabled, refused: names of the fields in that state.
        summary: a line below all of them.
        folded: names of the fields that wait within their group until somebody asks for more.
        changes: field name to what its choice changed, `[[label, old, new]]`.
        held: whether a slider is being dragged, as the page says.
        maps: names of the fields with a button that opens a map over the slider's range; a click is
            the message `["map", name]`.
        absent: names of the fields that are not shown.
        offers: field name to buttons below its control, `[{label, title}]`; a click is the message
            `[name, index]`.
    """

    view = "controls"
    sections = traitlets.List(traitlets.Dict()).tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    notes = traitlets.Dict().tag(sync=True)
    excluded = traitlets.Dict().tag(sync=True)
    disabled = traitlets.List(traitlets.Unicode()).tag(sync=True)
    refused = traitlets.List(traitlets.Unicode()).tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)
    offers = traitlets.Dict().tag(sync=True)
    folded = traitlets.List(traitlets.Unicode()).tag(sync=True)
    changes = traitlets.Dict().tag(sync=True)
    held = traitlets.Bool(False).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    maps = traitlets.List(traitlets.Unicode()).tag(sync=True)
    absent = traitlets.List(traitlets.Unicode()).tag(sync=True)


class Controls(ControlBox, Generic[Chosen]):
    """Every field of a `Choices`, and the last one that they made.

    Args:
        config: where they start; its class decides what is accepted.
        on_read: called after each change, with `config`, `refusal` and `remedy` (what `fix` would
            do) up to date.
        label: of the controls, for a screen reader.
    """

    def __init__(
        self,
        config: Chosen,
        on_read: Callable[[], None] = lambda: None,
        label: str = "",
    ) -> None:
        super().__init__(
            sections=sections(config.specs()),
            excluded=self._exclusions(config),
            label=label or translated("Design of the Transformer"),
        )
        self._offers: Mapping[str, list[dict[str, str]]] = {}
        self._of_no_use: Mapping[str, str] = {}
        self._remarks: dict[str, tuple[object, str, list[dict[str, str]]]] = {}
        self._fix: dict[str, object] = {}
        self._seen = frozenset(config.specs())
        self._on_offer: Callable[[str, int], None] = lambda name, index: None
        self.on_msg(self._take)
        self.config = config
        self._resting: asyncio.TimerHandle | None = None
        self.refusal = self.remedy = ""
        self._on_read = on_read
        self.apply(config.model_dump())
        self._explain()
        self.observe(self._read, names="values")

    def offer(
        self, offers: Mapping[str, list[dict[str, str]]], on_take: Callable[[str, int], None]
    ) -> None:
        """Puts buttons beside fields.

        Args:
            offers: name of a field to `[{label, title}]`.
            on_take: called with a field's name and the index of the offer that was taken.
        """
        self._offers, self._on_offer = offers, on_take
        self._explain()

    def apply(self, changes: Mapping[str, object]) -> None:
        """Changes some choices of the last accepted config, as if a person had set them."""
        with self.turn():
            self.values = {**self.config.model_dump(), **changes}

    @property
    def rest(self) -> float:
        """Seconds after the last change, up to which a slider is dragged."""
        return HELD if self.held else DRAG

    def only(self, view: View) -> None:
        """Shows the controls that a view has, and hides the others: what they say stays."""
        specs = {
            name: item
            for name, item in self.config.specs().items()
            if view.shows(name, label(item))
        }
        self.sections, self._seen = sections(specs), frozenset(specs)
        self.hidden = not self.sections

    def shows(self, name: str) -> bool:
        """Whether a field has a control that can be seen."""
        return name in self._seen

    def fix(self) -> None:
        """Makes the one change after which the refused choices are accepted, where there is one."""
        self.values = {**self.values, **self._fix}

    def remark(self, name: str, words: str, *offers: dict[str, str]) -> None:
        """A line below a control, and offers after its others, until its value changes."""
        self._remarks[name] = (self.values.get(name), words, list(offers))
        self._explain()

    def rule_out(self, reasons: Mapping[str, str]) -> None:
        """Disables fields without effect, each with its reason, until the next call; a field that
        is set stays open."""
        self._of_no_use = dict(reasons)
        self._explain()

    def _take(self, _: object, content: object, __: object) -> None:
        """Handles a click on an offer; a message that names no offer is ignored."""
        match content:
            case [str() as name, int() as index] if 0 <= index < len(self.offers.get(name, ())):
                self._on_offer(name, index)

    def _exclude(self) -> None:
        """Says which options are excluded once the choices rest: the answer to the choice itself
        comes first."""
        if self._resting:
            self._resting.cancel()
        try:
            self._resting = asyncio.get_running_loop().call_later(self.rest, self._rest)
        except RuntimeError:  # there is no loop, but in a kernel
            self._rest()

    def _rest(self) -> None:
        self._resting, self.excluded = None, self._exclusions(self.config)

    def _exclusions(self, config: Chosen) -> dict[str, Any]:
        """The options that the other choices exclude; none where choosing one changes the others
        with it."""
        return exclusions(config)

    def _absent(self, _: Chosen) -> list[str]:
        """The fields that have no meaning with these choices, and are not shown."""
        return []

    def _read(self, _: object = None) -> None:
        try:
            config = type(self.config)(**self.values)
        except ConfigError as error:
            self.refusal, self._fix = refusal_in_words(error), fix(self.config, self.values, error)
        else:
            self.refusal, self._fix = "", {}
            if config != self.config:
                self.config = config
                self._exclude()
            if self.values != config.model_dump():
                # a number that was written as "1_000"; which is read in turn
                self.values = config.model_dump()
                return
        self.remedy = remedy_in_words(self.config, self._fix)
        self._explain()
        self._on_read()

    def _explain(self) -> None:
        good = self.config.model_dump()
        specs = self.config.specs()
        unneeded = {
            **idle(self.config),
            **{
                name: translated("of no use: {reason}", reason=reason)
                for name, reason in self._of_no_use.items()
                if good[name] == specs[name].default
            },
        }
        refused = [
            name for name, value in self.values.items() if self.refusal and value != good.get(name)
        ]
        said = {
            name: rest
            for name, (value, *rest) in self._remarks.items()
            if self.values.get(name) == value
        }
        remarks = {name: words for name, (words, _) in said.items()}
        more = {
            name: [*self._offers.get(name, []), *offers]
            for name, (_, offers) in said.items()
            if offers
        }
        with together():
            self.disabled = [name for name in unneeded if name not in refused]
            self.refused = refused
            self.absent = self._absent(self.config)
            self.folded = [
                name
                for name, item in specs.items()
                if name not in (*refused, *said)
                and grouped(item)
                and (name in unneeded or (item.about.advanced and good[name] == item.default))
            ]
            wrong = {
                name: translated("refused; still {value}", value=in_words(good.get(name)))
                for name in refused
            }
            self.notes = {**remarks, **unneeded, **wrong}
            self.offers = {**self._offers, **more}
            self.summary = size_in_words(self.config) if isinstance(self.config, Config) else ""


def grouped(spec: Spec) -> bool:
    """Whether a field stands in its group, and not above them all."""
    return bool(spec.about.group) and not spec.about.pinned


def sections(specs: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Fields in the order of the page: those pinned or of no group without a title, then group by
    group."""
    top = [name for name in specs if not grouped(specs[name])]
    pinned = sorted(top, key=lambda name: (*PINNED, name).index(name))
    titles = dict.fromkeys(
        (*GROUPS, *(specs[name].about.group for name in specs if name not in pinned))
    )
    groups = {
        title: [n for n in specs if specs[n].about.group == title and n not in pinned]
        for title in titles
    }
    return [
        {"title": translated(title), "fields": [describe(specs[name]) for name in names]}
        for title, names in {"": pinned, **groups}.items()
        if names
    ]


def describe(spec: Spec) -> dict[str, Any]:
    """One control as the browser draws it."""
    steps = slider_steps(spec)
    return {
        "name": spec.name,
        "look": look(spec, steps),
        "label": spec.about.label,
        "symbol": "" if spec.about.symbol in spec.about.label.split() else spec.about.symbol,
        "unit": spec.about.unit,
        "term": term_of(spec.name, spec.about.symbol),
        "usual": usual_in_words(spec),
        "description": translated(
            "{description} {rule}.",
            description=spec.description,
            rule=spec.rule()[0].upper() + spec.rule()[1:],
        ),
        "initial": spec.default,
        "steps": steps,
        "options": [
            {
                "value": choice,
                "label": option.label or in_words(choice),
                "formula": option.formula,
                "source": cited(option.source),
            }
            for choice in spec.choices
            for option in [spec.about.options.get(choice, Option(""))]
        ],
    }


def choice(
    name: str,
    label: str,
    description: str,
    options: Sequence[Mapping[str, str]],
    initial: str,
    look: str = "list",
) -> dict[str, Any]:
    """A list that stands for no field of a record, as `controls.js` draws it.

    Args:
        options: `[{value, label}]`, and a `formula` and a `source` for the line below where there
            are any; in a list to search in, also a `group` and what is to `find` it.
        look: `list` or `search`.
    """
    return {
        "name": name,
        "look": look,
        "label": label,
        "symbol": "",
        "unit": "",
        "term": -1,
        "usual": "",
        "description": description,
        "initial": initial,
        "steps": [],
        "options": [{"formula": "", "source": "", **option} for option in options],
    }


def look(spec: Spec, steps: Iterable[float]) -> str:
    """Native control of a field: slider, entry, switch, text, segments or list."""
    if spec.kind in ("integer", "number"):
        return "slider" if steps else "entry"
    if spec.kind in ("switch", "text"):
        return spec.kind
    short = sum(len(in_words(choice)) for choice in spec.choices) <= SEGMENT_LETTERS
    return "segments" if short and len(spec.choices) <= SEGMENTS else "list"
