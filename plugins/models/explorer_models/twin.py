"""`twin`: the design of ours that is nearest to a model of any code, how near it is, and what could
not be read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.diagnosis.reading import by_layer, comparable, numbered, stated
from explorer.display import table
from explorer.profile import Profile
from explorer.sites import BRANCHES, SITE_WORDS, STREAM
from explorer.theory import predict
from explorer.vocabulary import STATISTICS, Key
from explorer_models.differences import FEW
from explorer_models.facts import Facts
from explorer_models.fields import Majority, Source, attention, folded, mlp, norms, sizes, weights
from explorer_models.matched import fit, gains, offsets
from explorer_models.texts import text

LIMITED = (
    "n_layers",
    "d_model",
    "n_heads",
    "head_size",
    "n_ctx",
    "batch_size",
    "mlp_ratio",
    "n_kv_heads",
)
"""Fields whose bounds a model may exceed."""


@dataclass(frozen=True)
class Twin:
    """The design of ours that is nearest to a model.

    Args:
        config: the design; `predict(twin.config)` is what theory expects of the model.
        distance: how near: the root mean square, over every matrix of every layer and every
            multiplier of stream and branch, of ln(the model's / the twin's), variances as fan_in ·
            mean W²; and, where the model behaves otherwise than theory expects of the twin, beside
            it that of the gaps. 0.1: about 10 % apart.
        unread: a sentence for each thing that could not be read.
        differs: a sentence for each thing in which the model is something that no config can say.
        parts: a sentence for each site at which the model behaves otherwise than the twin, in the
            order of the forward pass, then of the gradients: the first layer that is off, and by
            which factor. Where there are any, `Profile.twin` is None, and no line is drawn.
        model: name of the model's class.
        read_fields: names of the config's fields that were read; the others have their defaults.

    Example:
        >>> from torch import nn, randn
        >>> layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        >>> twin = ex.twin(nn.TransformerEncoder(layer, 3), randn(4, 16, 32))
        >>> twin.config.norm_placement, twin.config.n_layers, twin.differs
        ('post', 3, ())
    """

    config: Config
    distance: float
    unread: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    model: str = ""
    read_fields: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("nearest design", self.config),
            ("distance", self.distance),
        ]
        rows += [("could not be read", words) for words in self.unread] + [
            ("differs", words) for words in self.differs
        ]
        rows += [("behaves otherwise", words) for words in self.parts]
        return table(f"twin of {self.model or 'a model'}", (), rows)


def twin_of(
    layers: Sequence[Facts],
    source: Source,
    final: bool | None,
    measured: Profile,
    unread: Sequence[str],
) -> Twin | None:
    """The twin of a stack of blocks; None where no branch of any block was seen.

    Args:
        layers: the facts of each block.
        source: statistics of the first block's input.
        final: whether a norm follows the last block; None where that is not known.
        measured: the model's profile, which is compared with what theory expects of the twin.
        unread: a sentence for each part of a block that could not be read.
    """
    if not any((site, "branch") in facts for facts in layers for site in BRANCHES):
        return None
    majority = Majority(layers, unread)
    fields = {**sizes(majority), **attention(majority), **norms(majority, final), **mlp(majority)}
    fields |= source.fields(fields, majority.unread)
    gained = folded(majority, fields)
    defaults = {name: spec.default for name, spec in Config.specs().items()}
    rules, free = fit(layers, {**defaults, **fields}, gained)
    drawn = weights(majority)
    config = _accepted(majority, {**fields, **rules, **drawn}, free, gained)
    _remark(majority)
    gaps = list(_gaps(measured, predict(config)))
    if (count := sum(bool(facts.get(("layer", "unread"))) for facts in layers)) > FEW * len(layers):
        majority.parts.insert(0, text("parts", "unread", count=count, layers=len(layers)))
    gap = float(np.mean(np.square([size for size, _ in gaps] or [0.0])))
    distance = math.hypot(_distance(layers, config, gained), math.sqrt(gap))
    return Twin(
        config,
        distance,
        tuple(majority.unread),
        tuple(majority.differs),
        (*majority.parts, *(sentence for _, sentence in gaps)),
        measured.model,
        (*fields, *drawn),
    )


def _remark(majority: Majority) -> None:
    """Adds sentences on features that no design of ours has, such as experts."""
    if majority.usual("layer", "experts"):
        majority.differs.append(text("differs", "experts"))
    if majority.usual("layer", "attentions", 1) > 1:
        majority.differs.append(text("differs", "second_attention"))
    branches = [set(facts.get(("layer", "branches"), ())) for facts in majority.layers]
    if (
        {"attn_out"} in branches
        and {"mlp_out"} in branches
        and 2 * branches.count({*BRANCHES}) < len(branches)
    ):
        majority.parts.append(text("parts", "one_branch"))
    if majority.usual("attn_scores", "tied"):
        majority.differs.append(text("differs", "tied"))


def _accepted(
    majority: Majority, fields: dict[str, Any], free: int, folded: Mapping[str, float]
) -> Config:
    """The config of some fields, each within its limits.

    Args:
        majority: gets a sentence for each field that had to change.
        fields: of the config.
        free: how many variances are free beside the rules, see `matched.offsets`.
        folded: factors on the variances of matrices, from the norms before them.
    """
    specs, size = Config.specs(), {name: fields[name] for name in ("d_model", "n_layers")}
    for name in LIMITED:
        if name in fields and not specs[name].low <= fields[name] <= specs[name].high:
            near = min(max(fields[name], specs[name].low), specs[name].high)
            majority.differs.append(
                text("differs", "limit", field=name, value=float(fields[name]), near=near)
            )
            fields[name] = near
    config = _made(majority, fields)
    if any(getattr(config, name) != value for name, value in size.items()):
        free = 2  # fan_in · Var W is kept where the size could not be
    _, *factors = offsets(config, gains(majority.layers, folded), free)
    names = ("init_variance", "attention_variance", "mlp_variance")
    return config.replace(
        **{name: min(max(value, 1e-3), 1e3) for name, value in zip(names, factors, strict=True)}
    )


def _made(majority: Majority, fields: dict[str, Any]) -> Config:
    """The config of some fields. A value that `Config` refuses is replaced by the value that the
    error proposes, else by its default, else halved; each change gets a sentence."""
    specs, tried = Config.specs(), set()
    while True:
        try:
            return Config(**fields)
        except ConfigError as error:
            changes = [
                (name, value) for name, value in error.fixes.items() if fields.get(name) != value
            ]
            changes += [
                (name, specs[name].default) for name in fields if str(error).startswith(f"{name} ")
            ]
            changes += [
                (name, fields[name] // 2) for name in ("n_ctx", "n_layers") if fields[name] > 1
            ]
            name, value = next(change for change in changes if change not in tried)
            tried.add((name, value))
            majority.differs.append(
                text("differs", "refused", error=error, field=name, value=repr(value))
            )
            fields[name] = value


def _distance(layers: Sequence[Facts], config: Config, folded: Mapping[str, float]) -> float:
    """`Twin.distance` without the gaps of the behavior: the root mean square logarithm of each
    layer's variances and multipliers over the config's; nan without any.

    Args:
        layers: the facts of each layer; those that miss or are 0 are left out.
        config: the twin's.
        folded: factor on a matrix's variance for the gain of the norm before it, see
            `fields.folded`.
    """
    design, gaps = config.design, []

    def compare(measured: float, designed: float) -> None:
        if measured > 0 and designed > 0:
            gaps.append(math.log(measured / designed))

    for index, facts in enumerate(layers[: config.n_layers]):
        for name, matrix in design.matrices.items():
            variance = facts.get((name, "variance"), 0.0) * folded.get(name, 1.0)
            fan_in = facts.get((name, "shape"), (1, 1))[0]
            compare(variance * fan_in, matrix.gain * design.factors_by_layer(name)[index])
        for sublayer, site in enumerate(BRANCHES, start=2 * index):  # attention, then the MLP
            compare(facts.get((site, "skip"), 0.0), design.skips[sublayer])
            compare(facts.get((site, "branch"), 0.0), design.branches[sublayer])
    return math.sqrt(float(np.mean(np.square(gaps)))) if gaps else math.nan


# How a twin behaves beside its model: what theory expects of it, and what was measured, site by
# site.


FORWARD, BACKWARD = math.log(2), math.log(4)
"""Largest |ln(measured / expected)| of the median layer that chance makes in a model of width
64, of one draw: second moments and logits are off by 1.35 × at most, gradients by 1.8 × (15
models of transformers and 38 of ours). A person's own loss moves gradients, too."""
ALIKE = 0.2
"""Largest difference of the median layer's token correlation that chance makes: .10 at most in
transformers."""
WIDTH = 64
"""Narrower models scatter by 1/√width more."""
COMPARED: list[Key] = [
    *(("second_moment", site) for site in BRANCHES),
    ("logit_std", "attn_scores"),
    *(
        (name, site)
        for name in ("second_moment", "token_correlation", "activation_gradient")
        for site in STREAM[1:]
    ),
]
"""Gradients by matrices are left out: beside those of the other matrices they moved by up to 2.3 ×
with the loss, and by 7 × where experts share the tokens."""


def _gaps(measured: Profile, expected: Profile) -> Iterator[tuple[float, str]]:
    """The sites at which a model is further from its twin than chance explains: the gap, and a
    sentence.

    The gap is ln(measured / expected) of the median layer. In the stream, where gaps add up, it is
    that of all layers if each added as much as the median layer; of a correlation it is measured −
    expected. One layer unlike its siblings makes no gap: `diagnose` names it.
    """
    width = expected.config.d_model if expected.config else WIDTH
    for key in COMPARED:
        row, values, made = STATISTICS[key[0]], by_layer(measured, *key), by_layer(expected, *key)
        if len(values) != len(made):
            continue
        with np.errstate(all="ignore"):
            positive = (values > 0) & (made > 0) & np.isfinite(made)
            logs = np.where(positive, np.log(values / made), np.nan)
        gap = values - made if row.bounded else logs
        finite = np.isfinite(gap)
        if 2 * finite.sum() <= len(gap):
            continue
        size = float(np.median(gap[finite]))
        if key[1] in STREAM and not row.bounded:
            # 0 at the end where the signal, or the gradient, comes in
            whole = np.concatenate([gap, [0.0]] if row.backward else [[0.0], gap])
            steps = np.diff(whole)
            size = float(np.median(steps[np.isfinite(steps)])) * len(gap)
        bound = BACKWARD if row.backward else ALIKE if row.bounded else FORWARD
        bound *= math.sqrt(max(1.0, WIDTH / width))
        if abs(size) > bound:
            off = np.abs(np.where(finite, gap, 0.0))
            layer = int(np.argmax(off > bound) if (off > bound).any() else np.argmax(off))
            yield size, _sentence(key, measured, layer, float(values[layer]), float(made[layer]))


def _sentence(key: Key, measured: Profile, layer: int, value: float, expected: float) -> str:
    """The sentence on a gap, with the first layer, from 0, in which model and twin differ."""
    statistic, site = key
    row = STATISTICS[statistic]
    label, place, at = row.label.lower(), SITE_WORDS.get(site, site), numbered(measured, layer + 1)
    if row.bounded or not comparable(value, expected):
        return text(
            "parts",
            "gap",
            statistic=label,
            site=place,
            layer=at,
            measured=stated(value, expected),
            expected=stated(expected, value),
        )
    return text(
        "parts",
        "gap_ratio",
        statistic=label,
        site=place,
        layer=at,
        measured=value,
        expected=expected,
        ratio=value / expected,
    )
