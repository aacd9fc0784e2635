"""`Profile`: what a signal does, layer by layer. The narrow waist: theory, measurement and a
stranger's model fill it.

A profile is a table of arrays. A row is one statistic at one kind of site; its array runs over
`[seed, layer]`, `[seed, layer, head]` where attention is concerned, or `[seed, layer, position]` of
tokens. Layers count from 1; the site `embed` has the single layer 0. A value that is not finite
stays as it is, and `first_nonfinite` says where the trouble began."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from explorer import stored
from explorer.config import Config
from explorer.display import Copied, draw, glance, shown, table
from explorer.foreign import NOT_READ, Fault, Learning
from explorer.sites import FORWARD, MATRICES, SITE_WORDS, STREAM, TAPS, VECTORS
from explorer.translation import Note, translated
from explorer.vocabulary import VOCABULARY, Array, Key

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

FIRST_STEP = "the first step moves"
"""Begins the note on gradients that are 0 until a readout, or another weight after the layers, is
not."""
ALMOST_ZERO = "almost 0 at the input"
"""Ends the note on gradients at tokens that the first norm makes large."""
OTHER_TOKENS = "the number of tokens changes"
"""Begins the note on correlations along a stack that pools tokens: those of its layers are not of
the same tokens."""


class Breakdown(NamedTuple):
    """The first value that is not finite, in the order of computation."""

    statistic: str
    site: str
    layer: int
    seed: int

    @property
    def site_label(self) -> str:
        """The site as a person calls it."""
        return SITE_WORDS.get(self.site, self.site)

    @property
    def depth(self) -> float:
        """Its place on the depth axis, in layers: half a layer earlier where attention is the
        cause."""
        before_mlp = self.site in TAPS and TAPS[self.site].before_mlp
        return self.layer - 0.5 * before_mlp


@dataclass(frozen=True, eq=False)
class Profile(Copied):
    """Statistics of one model, measured or predicted, over independent seeds.

    Args:
        origin: "measured" or "predicted".
        values: `(statistic, site)` to an array `[seed, layer]`, `[seed, layer, head]` or `[seed,
            layer, position]`, float64, read-only. A prediction has one seed and, where heads are
            alike in law, one head.
        config: the experiment; None for a model that is not ours.
        model: name of such a model.
        layers: names of its blocks, in order.
        shapes: of its matrices, (fan_in, fan_out) by name, where they are known.
        dtype: the type in which its stream is computed, where numbers may run out of range:
            "float16".
        twin: the nearest design of ours, which says what theory expects of it; None where none is
            known, or where the model does not behave like it.
        remarks: sentences on how such a model was read: what could not be, what no config can say,
            and where it behaves otherwise than the nearest design.
        differences: layers that are built otherwise than their siblings: layer from 1, site, and
            what it does, such as (3, "attn_out", "has no norm before attention, where its siblings
            have one").
        faults: what is wrong in itself, such as weights that are not finite, in the order of the
            forward pass.
        traits: what the code of all layers of such a model has in common, words of `TRAITS`.
        kinds: name of each layer's kind, such as "attention, a window", where the layers of a model
            that is not ours were read: a layer is compared with those of its kind. "" for a layer
            that could not be read.
        absent: (statistic, site) to the layers, from 1, that have no such value: theirs are nan,
            and no breakdown.
        seeds: the seeds of the first axis; empty for a prediction.
        notes: statistic to the reason why the theory does not cover it (in part), or why it could
            not be measured.
        pattern: `[query, key]` of the layer and head in `pattern_of`, first sequence of the first
            seed.
        pattern_of: layer (from 1) and head (from 0) of `pattern`.
        seconds: duration of the measurement, or of the prediction.
        others: the same model's other stacks, such as an encoder beside its decoder.
        step: of its training, updates made before; 0 is the model as it was drawn.
        logits: of a model that is not ours and whose loss is the cross-entropy of its output: see
            `LOGITS`; else empty.
        learning: of a model that is not ours, which parameters learn; without parts where that was
            not read.
        waits: matrix to the layers, from 1, in which its gradient is exactly 0 before the first
            step and not after it.
        coverage: sentences on what was read of a model that is not ours, and what was not, where
            that is not all.
        facts: what all layers of a model that is not ours were seen to do, and whether it sees what
            it is to predict: see `FACTS`.
        scatter: of a prediction, `(statistic, site)` to the standard deviation of the natural
            logarithm over draws, `[1, layer]`: two of three draws are within e^(±scatter) of the
            value. Only of statistics for which theory has it.

    Example:
        >>> profile = ex.predict(ex.Config(n_layers=12))
        >>> profile["second_moment", "resid_post"].shape  # [seed, layer]
        (1, 12)
        >>> profile["attention_entropy", "pattern"].shape  # [seed, layer, head], in nats
        (1, 12, 1)
    """

    origin: Literal["measured", "predicted"]
    values: Mapping[Key, Array]
    config: Config | None = None
    model: str = ""
    layers: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    dtype: str = ""
    twin: Config | None = None
    remarks: tuple[str, ...] = ()
    absent: Mapping[Key, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    differences: tuple[tuple[int, str, str], ...] = ()
    faults: tuple[Fault, ...] = ()
    traits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pattern: Array | None = None
    pattern_of: tuple[int, int] | None = None
    seconds: float = math.nan
    others: tuple[Profile, ...] = ()
    step: int = 0
    logits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    learning: Learning = NOT_READ
    waits: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    coverage: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=lambda: MappingProxyType({}))
    scatter: Mapping[Key, Array] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        values = {key: np.array(value, dtype=np.float64) for key, value in self.values.items()}
        for (statistic, site), value in values.items():
            if statistic not in VOCABULARY:
                raise ValueError(
                    f"statistic must be one of {', '.join(VOCABULARY)}; got {statistic!r}"
                )
            if value.ndim not in (2, 3):
                raise ValueError(
                    f"{statistic} at {site} must be [seed, layer(, head)]; got {value.shape}"
                )
            value.setflags(write=False)
        scatter = {key: np.array(value, dtype=np.float64) for key, value in self.scatter.items()}
        for key, value in scatter.items():
            if key not in values or value.shape != values[key].shape:
                raise ValueError(
                    f"scatter of {key[0]} at {key[1]} must be as its values; got {value.shape}"
                )
            value.setflags(write=False)
        object.__setattr__(self, "scatter", MappingProxyType(scatter))
        if self.pattern is not None:  # a copy, so that it keeps no tensor alive
            object.__setattr__(self, "pattern", np.array(self.pattern, dtype=np.float64))
        object.__setattr__(self, "values", MappingProxyType(values))
        for name in ("notes", "absent", "shapes", "logits", "waits", "facts"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __getitem__(self, key: Key | str) -> Array:
        """The array of a statistic at a site, `[seed, layer]` or `[seed, layer, head]`.

        Args:
            key: `(statistic, site)`; the statistic alone where it has one site.
        Raises:
            KeyError: there is none, or several; names what there is.
        """
        keys = [held for held in self if key in (held, held[0])]
        if len(keys) == 1:
            return self.values[keys[0]]
        if keys:
            sites = ", ".join(site for _, site in keys)
            raise KeyError(
                f'{key} has several sites: {sites}; say profile["{key}", "{keys[-1][1]}"]'
            )
        held = ", ".join(f"{statistic}@{site}" for statistic, site in self)
        wanted = " at ".join(map(str, key)) if isinstance(key, tuple) else shown(key)
        raise KeyError(f"this profile has no {wanted}; it has {held}")

    def __iter__(self) -> Iterator[Key]:
        """Every `(statistic, site)`."""
        return iter(self.values)

    def __contains__(self, key: object) -> bool:
        """Whether there is such a `(statistic, site)`, or such a statistic at any site."""
        return any(key in (held, held[0]) for held in self)

    def keys(self) -> list[Key]:
        """Every `(statistic, site)`, in the order of the vocabulary; a notebook completes them
        within brackets."""
        return list(self)

    _ipython_key_completions_ = keys

    @property
    def partial(self) -> bool:
        """Whether it is a measurement of some of its config's seeds: the others are still to
        come."""
        return (
            self.origin == "measured"
            and self.config is not None
            and len(self.seeds) < self.config.n_seeds
        )

    @property
    def heading(self) -> str:
        """Origin and subject: 'measured: Config(n_layers=24), 4 seeds'."""
        subject = self.config or self.model or translated("a model without a config")
        message = "{origin}: {subject}, {count} seeds"
        if len(self.seeds) == 1:
            message = "{origin}: {subject}, 1 seed"
        elif not self.seeds:
            message = "{origin}: {subject}"
        return translated(
            message, origin=translated(self.origin), subject=subject, count=len(self.seeds)
        )

    def __repr__(self) -> str:
        return f"Profile({self.heading}; {', '.join(dict.fromkeys(statistic for statistic, _ in self))})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The verdict and four charts; a table where there is no script to draw them."""
        return {"text/plain": repr(self), "text/html": self._repr_html_(), **glance(self)}

    def _repr_html_(self) -> str:
        """Each statistic in three numbers: the mean over seeds (and heads) where it begins,
        halfway, where it ends."""
        return table(
            self.heading,
            [*map(translated, ("Statistic", "", "Where", "First", "Middle", "Last", ""))],
            [
                (
                    VOCABULARY[name].label,
                    VOCABULARY[name].symbol,
                    where,
                    *_ends(name, value),
                    translated(self.notes.get(name, "")),
                )
                for name in dict.fromkeys(
                    statistic for statistic, _ in self if not VOCABULARY[statistic].by_position
                )
                for where, value in self._places(name)
            ],
        )

    def _places(self, statistic: str) -> Iterator[tuple[str, Array]]:
        """The residual stream as one, and every other site by itself."""
        if any((statistic, site) in self for site in STREAM):
            yield "residual stream", self.stream(statistic)[1]
        for name, site in self:
            if name == statistic and site not in STREAM:
                without = [layer - 1 for layer in self.absent.get((name, site), ())]
                yield SITE_WORDS.get(site, site), np.delete(self[name, site], without, axis=1)

    def plot(self, statistic: str = "second_moment", *others: Profile, layer: int = 0) -> go.Figure:
        """A chart of the page, of this profile and others beside it.

        Args:
            statistic: a statistic, or the name of a chart.
            others: such as what the theory expects of the same config.
            layer: from 1, whose tokens a chart by position has; 0 is the last one, and so is one
                that a profile does not have.
        Raises:
            ValueError: there is no such chart, which names those there are; or it has all layers,
                and one is given.
        """
        return draw(self, statistic, *others, layer=layer)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        own = sum(
            array.nbytes for array in (*self.values.values(), self.pattern) if array is not None
        )
        return own + sum(other.nbytes for other in self.others)

    def stream(self, statistic: str) -> tuple[Array, Array]:
        """A statistic along the residual stream, in the order of the forward pass.

        Returns:
            depth `[site]` in layers (0 the input, l − ½ after the attention of layer l, l after its
            MLP), and the values `[seed, site]`.
        """
        if not any((statistic, site) in self.values for site in STREAM):
            raise KeyError(f"this profile has no {statistic} on the residual stream")
        return self._along(self.values, statistic)

    def note(self, statistic: str, site: str = "") -> str:
        """The note on a statistic, without the parts that begin with the names of other sites, as
        "W_Q and W_K rough: …" does.

        Args:
            site: such as "W_V"; empty for all parts.
        """
        note = self.notes.get(statistic, "")
        parts = note.each() if isinstance(note, Note) else note.split("; ")
        return Note.joined(part for part in parts if not site or _concerns(part, site))

    def mean_over_draws(self, key: Key) -> Array:
        """Mean over draws, `[1, layer]`, of a statistic that is predicted for a typical one; the
        values where theory has no scatter.

        A logarithm that is normal, of standard deviation s, makes a mean e^(s²/2) times as
        large."""
        values = self.values[key]
        return np.asarray(values * np.exp(self.scatter.get(key, 0.0 * values) ** 2 / 2))

    def stream_scatter(self, statistic: str) -> Array | None:
        """`scatter` along the residual stream, in the order of `stream`, `[1, site]`; None where
        theory has none."""
        if (statistic, STREAM[-1]) not in self.scatter:
            return None
        return self._along(self.scatter, statistic)[1]

    def _along(self, arrays: Mapping[Key, Array], statistic: str) -> tuple[Array, Array]:
        """`stream`, of these arrays."""
        sites = [site for site in STREAM if (statistic, site) in arrays]
        depth = np.concatenate([self.depth(site) for site in sites])
        order = np.argsort(depth, kind="stable")
        values = np.concatenate([arrays[statistic, site] for site in sites], axis=1)
        return depth[order], values[:, order]

    def depth(self, site: str) -> Array:
        """Positions of a site's layers on the depth axis, `[layer]`, in layers."""
        length = next(value.shape[1] for (_, name), value in self.values.items() if name == site)
        tap = TAPS.get(site)
        if tap is None:
            return np.arange(1.0, length + 1)
        if tap.once:
            return np.zeros(length)
        # attention's own statistics are drawn at the number of their layer
        half_earlier = tap.before_mlp and tap.kind != "attention"
        return np.arange(1.0, length + 1) - 0.5 * half_earlier

    @property
    def first_nonfinite(self) -> Breakdown | None:
        """The first value that is not finite, forward before backward, by depth; None when all are
        finite."""
        breakdowns = []
        for (statistic, site), value in self.values.items():
            bad = [
                index
                for index in np.argwhere(~np.isfinite(value)).tolist()
                if index[1] + 1 not in self.absent.get((statistic, site), ())
            ]
            if bad and not (self.origin == "predicted" and statistic in self.notes):
                way = -1 if VOCABULARY[statistic].backward else 1
                seed, layer, *_ = min(bad, key=lambda index: way * index[1])
                layer += site != "embed"
                order = FORWARD.index(site) if site in FORWARD else len(FORWARD)
                breakdown = Breakdown(statistic, site, layer, self.seeds[seed] if self.seeds else 0)
                breakdowns.append(((way < 0, way * layer, way * order), breakdown))
        return min(breakdowns, key=itemgetter(0))[1] if breakdowns else None

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns origin, seed, site, layer, head, position, statistic,
        value.

        `head` and `position` (both from 0) are missing (<NA>) where the statistic has none; `seed`
        is missing in a prediction."""
        import pandas as pd

        seeds = np.array(self.seeds or [None])
        parts = [
            tidy(key, value).assign(
                origin=self.origin, seed=lambda part: pd.array(seeds[part.row], dtype="Int64")
            )
            for key, value in self.values.items()
        ]
        columns = ["origin", "seed", "site", "layer", "head", "position", "statistic", "value"]
        return pd.concat(parts, ignore_index=True)[columns].astype({"layer": "int64"})

    def to_json(self) -> str:
        """One JSON object that `from_json` reads back; nan and infinities become strings, for JSON
        has none."""
        return json.dumps(stored.plain_record(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Reads what `to_json` wrote; the pattern is not part of it.

        Raises:
            ValueError: it is something else; names the field, the rule and the value.
        """
        try:
            return cls._of(stored.fields_of(text))
        except (ValueError, OverflowError) as error:
            raise stored.refusal(error) from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Profile:
        """A profile, and the other stacks beside it, of their fields."""
        others = tuple(cls._of(other) for other in fields["others"])
        return cls(**{**fields, "others": others})


def _concerns(note: str, site: str) -> bool:
    """Whether a part of a note is about a site: it names it, or begins with none."""
    subject = re.split(" rough| not covered", note)[0]
    names = subject.replace(",", "").split(" ")
    return names[0] not in (*MATRICES, *VECTORS) or site in names


def index_of(layer: int, count: int) -> int:
    """Index of a layer, counted from 1, among so many: the last one's for 0, and for a layer that
    is not there."""
    return min(layer, count) - 1


def by_site(values: Array) -> dict[str, Array]:
    """Values along the stream, in the order of the forward pass, to those of each of its sites."""
    return dict(zip(STREAM, (values[:1], values[1::2], values[2::2]), strict=True))


def tidy(key: Key, values: Array) -> pd.DataFrame:
    """One number a row of `[row]`, `[row, layer]`, `[row, layer, head]` or `[row, layer,
    position]`.

    An axis that is not there is missing (<NA>). Layers count from 1, and 0 is the input; heads and
    positions from 0."""
    import pandas as pd  # half a second, which a page that shows no table need not wait

    index = np.indices(values.shape).reshape(values.ndim, -1)
    missing = np.full(values.size, None)
    last, placed = (
        index[2] if values.ndim > 2 else missing,
        key[0] in VOCABULARY and VOCABULARY[key[0]].by_position,
    )
    return pd.DataFrame(
        {
            "row": index[0],
            "statistic": key[0],
            "site": key[1],
            "layer": pd.array(
                index[1] + (key[1] != "embed") if values.ndim > 1 else missing, dtype="Int64"
            ),
            "head": pd.array(missing if placed else last, dtype="Int64"),
            "position": pd.array(last if placed else missing, dtype="Int64"),
            "value": values.ravel(),
        }
    )


def _ends(statistic: str, value: Array) -> list[float]:
    """The first, middle and last of `[seed, layer]` or `[seed, layer, head]`, mean over seeds and
    heads."""
    with np.errstate(all="ignore"):
        layers = VOCABULARY[statistic].mean(value, axis=(0, *range(2, value.ndim)))
    return [float(layers[place]) for place in (0, len(layers) // 2, -1)]
