"""`compare`: the layer and the site at which two profiles part, beyond what the scatter of their
draws explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.diagnosis.agreement import CHANCE, most_errors
from explorer.diagnosis.finding import text
from explorer.diagnosis.reading import comparable, place, stated
from explorer.diagnosis.structure import FEEDS
from explorer.display import Copied, draw, glance, must_be, shown, table
from explorer.profile import Profile
from explorer.sites import FORWARD, SITE_WORDS
from explorer.translation import TranslatedError, translated
from explorer.vocabulary import VOCABULARY, Array, Key, Statistic

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

TOLERANCE = 0.1
"""Share by which two values may differ; of statistics between two bounds, the difference itself."""
PATH = tuple(name for site in FORWARD for name in (*FEEDS.get(site, ()), site))
"""Sites of a layer and its matrices, in the order of the forward pass."""


class Difference(NamedTuple):
    """One statistic at one site of two profiles: at the first layer where they part, else where
    they are farthest."""

    statistic: str
    site: str
    layer: int
    """From 1; 0 is the input. "First" is along the signal's way: of gradients the last layer comes
    first."""
    parts: bool
    first: float
    """Mean over seeds and heads of the first profile in that layer."""
    second: float
    distance: float
    """|ln(second / first)|, or |second − first| of a statistic between two bounds; inf beside what
    is not finite."""

    @property
    def factor(self) -> float:
        """Second over first; nan of a statistic between two bounds, and where it is no finite
        number."""
        with np.errstate(all="ignore"):
            factor = float(np.float64(self.second) / self.first)
        return (
            math.nan
            if VOCABULARY[self.statistic].bounded or not math.isfinite(factor) or not factor
            else factor
        )

    @property
    def words(self) -> str:
        """Statistic, site, both values, and the factor where there is one."""
        label, site = VOCABULARY[self.statistic].label, SITE_WORDS.get(self.site, "")
        known = {
            "statistic": label[:1].lower() + label[1:],
            "site": text("phrase", "site", site=site) if site else self.site,
            "first": stated(self.first, self.second),
            "second": stated(self.second, self.first),
        }
        ratio = comparable(self.first, self.second) and not math.isnan(self.factor)
        return text("comparison", "ratio" if ratio else "values", **known, factor=self.factor)


@dataclass(frozen=True, eq=False)
class Comparison(Copied):
    """Two profiles side by side; as text, a sentence on where they first part.

    Args:
        first, second: the profiles.
        tolerance: share, or difference between bounds, by which values may differ.
        differences: one for each statistic and site that both have. Those that part come first, in
            the order of the signal: the forward pass from the input on, layer by layer, then the
            gradients from the last layer back.

    Example:
        >>> pre, post = (ex.predict(ex.Config(norm_placement=name)) for name in ("pre", "post"))
        >>> ex.compare(pre, post).differences[0][:3]
        ('second_moment', 'resid_post', 1)
    """

    first: Profile
    second: Profile
    tolerance: float
    differences: tuple[Difference, ...]

    @property
    def partings(self) -> tuple[Difference, ...]:
        """The statistics and sites at which the two part."""
        return tuple(row for row in self.differences if row.parts)

    def place(self, difference: Difference) -> str:
        """The layer of a difference in words, with the model's name for it."""
        return place(self.second if self.second.layers else self.first, difference.layer)

    def __str__(self) -> str:
        partings, count = self.partings, len(self.differences)
        row = partings[0] if partings else max(self.differences, key=lambda row: row.distance)
        known = {
            "place": self.place(row),
            "words": row.words,
            "tolerance": self.tolerance,
            "count": count,
        }
        key = "nowhere" if row.distance else "same"
        if partings:
            key = "parts"
        return text("comparison", key, **known, parted=len(partings))

    __repr__ = __str__

    def frame(self) -> pd.DataFrame:
        """A statistic and site a row: statistic, site, layer, parts, first, second, distance,
        factor.

        `layer` is where the two first part, or, where `parts` is False, where they are farthest
        from each other."""
        import pandas as pd

        return pd.DataFrame([{**row._asdict(), "factor": row.factor} for row in self.differences])

    def plot(self, statistic: str = "") -> go.Figure:
        """A chart of both profiles, with a mark where they first part.

        Args:
            statistic: a statistic of the vocabulary; empty for the one in which they first part.
        Raises:
            ValueError: there is no such statistic.
        """
        return draw(self, statistic)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The chart; a table where there is no script to draw it."""
        return {"text/plain": repr(self), "text/html": self._repr_html_(), **glance(self)}

    def _repr_html_(self) -> str:
        return table(
            str(self),
            [*map(translated, ("Statistic", "Site", "Parts", "First", "Second", "Factor"))],
            [
                (
                    VOCABULARY[row.statistic].label,
                    SITE_WORDS.get(row.site, row.site),
                    self.place(row) if row.parts else "–",
                    row.first,
                    row.second,
                    "" if math.isnan(row.factor) else row.factor,
                )
                for row in self.differences
            ],
        )


def compare(
    first: Profile, second: Profile, tolerance: float = TOLERANCE, chance: float = CHANCE
) -> Comparison:
    """Where two profiles first part: measured or predicted, of a model of ours or of anybody's.

    At each layer the means over seeds and heads are compared, of every statistic and site that both
    have. They part where they differ by more than the tolerance, and by more than chance explains:
    3 standard errors of the two, or more where so many values are compared that one of them exceeds
    3 by chance. The scatter of a profile of one seed is taken from the other; a prediction has
    none, and where neither has two seeds the tolerance alone decides. A value that is not finite
    differs from any that is. One head unlike the others is not seen.

    Args:
        first: what is compared with, such as a prediction.
        second: a profile of as many layers.
        tolerance: 0.1: values may differ by a tenth, and those between two bounds, such as a
            correlation, by 0.1.
        chance: share of comparisons of profiles of one design that may part all the same.
    Raises:
        TypeError: one of the two is no profile.
        ValueError: they have different numbers of layers or nothing in common, or a number is out
            of range.

    Example:
        >>> theory = ex.predict(ex.Config(norm_placement="pre"))
        >>> ex.compare(theory, theory)
        They are the same in 32 statistics and sites.
    """
    pair = must_be(Profile, "first", first), must_be(Profile, "second", second)
    for name, value, most in (("tolerance", tolerance, 1e6), ("chance", chance, 1.0)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
            raise TranslatedError(
                "{name} must be a number above 0, of at most {most:g}; got {value}",
                name=name,
                most=most,
                value=shown(value),
            )
    keys = [(name, site) for name, row in VOCABULARY.items() for site in row.sites]
    gaps = []
    for key in keys:
        shared = key in first.values and key in second.values
        if not shared or VOCABULARY[key[0]].by_position:
            continue
        lengths = [profile.values[key].shape[1] for profile in pair]
        if lengths[0] != lengths[1]:
            raise TranslatedError(
                "second must have as many layers as first; got {second} and {first} of {statistic} at {site}",
                second=lengths[1],
                first=lengths[0],
                statistic=key[0],
                site=key[1],
            )
        gap = _Gap.of(*pair, key)
        if gap.known.any():
            gaps.append(gap)
    if not gaps:
        raise TranslatedError(
            "second must share a statistic with first; got {second!r} beside {first!r}",
            second=second,
            first=first,
        )
    count = sum(int(gap.known.sum()) for gap in gaps)
    rows = [gap.difference(tolerance, chance / count) for gap in gaps]
    return Comparison(first, second, float(tolerance), tuple(sorted(rows, key=_order)))


def _order(difference: Difference) -> tuple[bool, bool, int, int]:
    """Along the signal's way: forward by layer and site, then backward."""
    row, site = VOCABULARY[difference.statistic], difference.site
    way = -1 if row.backward else 1
    at = PATH.index(site) if site in PATH else len(PATH)
    return not difference.parts, row.backward, way * difference.layer, way * at


class _Gap(NamedTuple):
    """Two profiles' values of a statistic at a site, `[layer]`."""

    key: Key
    means: tuple[Array, Array]
    distance: Array
    error: Array
    freedom: int
    """Of the standard error: degrees of freedom; 0 where no scatter is known."""
    known: NDArray[np.bool_]
    """Layers in which both have a value, be it not finite."""

    @classmethod
    def of(cls, first: Profile, second: Profile, key: Key) -> _Gap:
        row, pair = VOCABULARY[key[0]], (first, second)
        with np.errstate(all="ignore"):
            draws = [_heads_averaged(row, profile.values[key]) for profile in pair]
            before, after = (row.mean(part) for part in draws)
            far = np.abs(after - before if row.bounded else np.log(after / before))
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        distance = np.where(same, 0.0, np.where(np.isfinite(far), far, math.inf))
        known = np.ones(len(distance), dtype=bool)
        measured = []
        for profile, part in zip(pair, draws, strict=True):
            known &= ~np.isin(np.arange(1, len(known) + 1), profile.absent.get(key, ()))
            if profile.origin == "measured":
                measured.append(part)
            elif profile.origin == "predicted" and key[0] in profile.notes:
                known &= np.isfinite(part[0])  # the theory does not cover the others
        return cls(key, (before, after), distance, *_scatter(row, measured), known)

    def difference(self, tolerance: float, chance: float) -> Difference:
        """The difference; `chance` is how often one value may be beyond its scatter."""
        row = VOCABULARY[self.key[0]]
        most = most_errors(self.freedom * len(self.distance) + 1, 1, chance)
        limit = np.maximum(tolerance if row.bounded else math.log1p(tolerance), most * self.error)
        off = np.flatnonzero(self.known & (self.distance > limit))
        index = int(np.argmax(np.where(self.known, self.distance, -1.0)))
        if len(off):
            index = int(off[-1] if row.backward else off[0])
        layer = index + (self.key[1] != "embed")
        first, second = (float(part[index]) for part in self.means)
        return Difference(
            *self.key, layer, bool(len(off)), first, second, float(self.distance[index])
        )


def _heads_averaged(row: Statistic, values: Array) -> Array:
    """`[seed, layer]` of values that may be by head."""
    return values if values.ndim == 2 else row.mean(values, 2)


def _scatter(row: Statistic, draws: Sequence[Array]) -> tuple[Array, int]:
    """Standard error of the distance of two means, `[layer]`, and its degrees of freedom.

    A few seeds say little of one layer's scatter: it is at least that of the site's layers on
    average."""
    spread = [_variance(row, part) if len(part) > 1 else None for part in draws]
    known = [part for part in spread if part is not None]
    if not known:
        return np.zeros(1), 0
    total = sum(
        (
            (known[0] if own is None else own) / len(part)
            for own, part in zip(spread, draws, strict=True)
        ),
        np.zeros(1),
    )
    finite = total[np.isfinite(total)]
    least = float(finite.mean()) if len(finite) else 0.0
    return np.sqrt(np.fmax(total, least)), sum(len(part) - 1 for part in draws)


def _variance(row: Statistic, draws: Array) -> Array:
    """Variance of a draw, `[layer]`; relative to the mean where values are compared by their
    ratio."""
    with np.errstate(all="ignore"):
        error = row.standard_error(draws)
        return np.asarray(len(draws) * np.square(error if row.bounded else error / row.mean(draws)))
