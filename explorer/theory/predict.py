"""`predict`: the profile that the theory expects of a config, with the same sites and statistics as a measurement.

What is predicted is the mean over draws of weights and input at finite width, to first order in 1/width; of gradients
by weights, the root of the mean square. One seed, one head. Where the theory does not hold the values are nan, and
`notes` says why.
"""

from __future__ import annotations

import math
import time

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.profile import BRANCHES, ROWS, STATISTICS, STREAM, VECTORS, Array, Key, Profile, by_site
from explorer.theory import coverage
from explorer.theory.gains import gains
from explorer.theory.laws import LAWS, ROW_LAWS, Moments, Rows
from explorer.theory.recursion import Recursion, Stream


def predict(config: Config, backward: bool = True) -> Profile:
    """The profile that theory predicts for a config. Accepts every config: values not covered are nan, with a note.

    Args:
        config: the design.
        backward: whether gradients are wanted, too; without them it takes half the time.
    Returns:
        A profile of origin "predicted", values `[1, layer]` and `[1, layer, 1]`.
    Raises:
        TypeError: the config is none.
    """
    must_be(Config, "config", config)
    start = time.perf_counter()
    with np.errstate(all="ignore"):
        values, notes = _values(config, backward)
    return Profile("predicted", values, config, notes=notes, seconds=time.perf_counter() - start)


def _values(config: Config, backward: bool) -> tuple[dict[Key, Array], dict[str, str]]:
    """Every statistic of the vocabulary at every site that the model has, or those of the forward pass, and the notes.
    """
    recursion = Recursion(config, gains(config))
    stream, rows = recursion.stream(), recursion.rows()
    covered = len(stream.site.q)
    columns = _stream(config, stream) | _rows(rows)
    if backward:
        columns |= _gradients(config, recursion, covered == 2 * config.n_layers)
    wanted = [row for row in STATISTICS.values() if backward or not row.backward]
    values, lengths, predicted = {}, _lengths(config), {name for name, _ in columns}
    for row in wanted:
        for site, length in lengths.items():
            if site in row.sites:
                full = _whole(columns.get((row.name, site), np.empty(0)), length)
                values[row.name, site] = full[None, :, None] if row.by_head else full[None]
    values, notes = coverage.apply(config, values, rows, covered)
    notes |= {row.name: row.unpredicted for row in wanted if row.name not in predicted}
    return values, {row.name: notes[row.name] for row in wanted if row.name in notes}


def _whole(column: Array, length: int) -> Array:
    """A column that ends where the recursion did, with nan after it."""
    return column if len(column) == length else np.append(column, np.full(length - len(column), math.nan))


def _lengths(config: Config) -> dict[str, int]:
    """Number of layers of each site that the model has."""
    absent = () if config.design.attends else ("attn_scores", "pattern", "attn_out")
    sites = [*STREAM, *BRANCHES, *ROWS, *config.design.shapes, *_vectors(config)]
    return {site: 1 if site == "embed" else config.n_layers for site in sites if site not in absent}


def _vectors(config: Config) -> list[str]:
    """Names of what is learned besides matrices."""
    known = (config.design.sink.std, config.design.alpha_shape is not None, config.design.mix_shapes)
    return [name for name, there in zip(VECTORS, known, strict=True) if there]


def _stream(config: Config, stream: Stream) -> dict[Key, Array]:
    site, added = ([Moments(*(column[start::2] for column in part)) for start in (0, 1)] for part in stream[1:])
    parts = (stream.embed, *site, *added)
    every, ends = Moments(*map(np.concatenate, zip(*parts, strict=True))), np.cumsum([len(part.q) for part in parts])
    values: dict[Key, Array] = {}
    for name, law in LAWS.items():  # each of all sites in one stroke
        columns = zip((*STREAM, *BRANCHES), np.split(law(config, every), ends[:-1]), strict=True)
        values |= {(name, place): column for place, column in columns if place in STATISTICS[name].sites}
    return values


def _rows(rows: Rows) -> dict[Key, Array]:
    return {(name, site): law(rows) for name, law in ROW_LAWS.items() for site in STATISTICS[name].sites}


def _gradients(config: Config, recursion: Recursion, covered: bool) -> dict[Key, Array]:
    """Gradients of a stack that is covered to its last layer; else columns without values, which have notes."""
    empty = np.empty(0), dict.fromkeys(config.design.shapes, np.empty(0))
    site, weights = recursion.gradients() if covered else empty
    return {
        **{("activation_gradient", place): column for place, column in by_site(site).items()},
        **{("parameter_gradient", name): column for name, column in weights.items()},
    }
