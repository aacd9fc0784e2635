"""Designs and profiles in words, as the page shows them, and the names that designs are given. Pure
functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from explorer.app.widgets.wording import in_words
from explorer.config import Config, departures, design_fields, differences
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS
from explorer.translation import spoken, translated
from explorer.vocabulary import STATISTICS

LONGEST_NAME = 40
"""Letters of a design's name: it stands in a legend, and in front of every number on hovering."""
MOST_DIFFERENCES = 3
"""Differences that are spelled out; further ones are counted."""
IDENTITY = ("norm_placement", "residual")
"""Fields that must agree with a preset for a design to be named after it."""


def change_words(before: Config, after: Config) -> list[list[str]]:
    """Label, old and new value of each field that two configs differ in and that matters in the
    later one."""
    specs = Config.specs()
    return [
        [specs[name].about.label, value_words(before, name), value_words(after, name)]
        for name in differences(before, after)
        if after.matters(name)
    ]


def value_words(config: Config, name: str) -> str:
    """A field's value in words; a text of one's own is none of our names, and is quoted."""
    value = getattr(config, name)
    return f"“{value}”" if Config.specs()[name].kind == "text" else in_words(value)


def choice_words(config: Config, fields: Collection[str]) -> str:
    """Some choices of a config in words: 'depth 24, norm placement post'; beyond a limit only their
    number."""
    specs = Config.specs()
    parts = [f"{lowered(specs[name].about.label)} {value_words(config, name)}" for name in fields]
    more = len(parts) - MOST_DIFFERENCES
    if more > 1:
        parts = [*parts[:MOST_DIFFERENCES], translated("{count} more", count=more)]
    return translated(", ").join(parts)


def name_of(config: Config, taken: Collection[tuple[str, Config]] = ()) -> str:
    """A name that none of the others has: the nearest preset's title and the differences from it
    and from the others.

    A design whose norm or residual no preset has is called by what sets it apart from the default
    one.

    Args:
        taken: the names in use, and their configs.
    """
    name = _alone(config, tuple(PRESETS), spoken())
    holder = next((other for held, other in taken if held == name), None)
    if holder is None:
        return name
    apart = choice_words(config, differences(config, holder))
    fits = len(name) + len(apart) + 2 <= LONGEST_NAME
    return unique(
        cut(f"{name}, {apart}" if fits else f"{apart}, {name}"), {held for held, _ in taken}
    )


def tidied(text: str) -> str:
    """A person's text as a name: on one line and without invisible characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def cut(name: str, end: str = "") -> str:
    """A name and its end in as many letters as a name may have."""
    room = LONGEST_NAME - len(end)
    return (name if len(name) <= room else name[: room - 1].rstrip(" ,") + "…") + end


def unique(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    numbered = (cut(name, f" ({number})") for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def lowered(label: str) -> str:
    """A label within a sentence: 'Depth' is 'depth', 'QK-norm' stays."""
    return label if label[:2].isupper() else label[0].lower() + label[1:]


@lru_cache(maxsize=256)
def _alone(config: Config, known: tuple[str, ...], _: str) -> str:
    """Name of a design where there is no other, of the presets that are known, in a language. A
    page asks again at every change."""
    departed = departures(config)
    kin = [name for name in known if not {*IDENTITY} & {*departed[name]}]
    if kin:
        nearest = min(kin, key=lambda name: len(departed[name]))
        name = ", ".join(
            filter(None, (PRESETS[nearest].title, choice_words(config, departed[nearest])))
        )
        if len(name) <= LONGEST_NAME:
            return name
    return cut(choice_words(config, differences(config, Config(), design_fields())))


def progress_words(config: Config, fraction: float, some: Profile | None = None) -> str:
    """How far a measurement is, such as "41 % of 3 seeds", and how many seeds the charts show.

    A percentage, because how many seeds are measured at once depends on the machine.

    Args:
        fraction: of the work, 0 … 1.
        some: a measurement of some of several seeds, which the charts show meanwhile.
    """
    message = "{percent:.0f} % of {count} seeds"
    seeds_shown = 0
    if some and some.config == config:
        message = "{percent:.0f} % of {count} seeds · the charts show {drawn} of them"
        seeds_shown = len(some.seeds)
    elif config.n_seeds == 1:
        message = "{percent:.0f} % of 1 seed"
    return translated(message, percent=100 * fraction, count=config.n_seeds, drawn=seeds_shown)


def model_words(config: Config) -> str:
    """The size of a design, in words."""
    message = "{layers} layers of width {width}"
    if config.n_layers == 1:
        message = "1 layer of width {width}"
    return translated(message, layers=config.n_layers, width=config.d_model)


def summary(measured: Profile, predicted: Profile | None, *, whole: bool = True) -> tuple[str, str]:
    """Status line of a finished measurement: a sentence, and details.

    Args:
        whole: whether it says what is not finite.
    """
    config, first = measured.config, measured.first_nonfinite
    text = translated("Measured")
    if config:
        text = translated("Measured {model}", model=model_words(config))
    if first and whole:
        where = translated("the input")
        if first.layer:
            where = translated("layer {layer}", layer=first.layer)
        text = translated(
            "{measured}. Not finite from {place}: {statistic} at the {site}, seed {seed}",
            measured=text,
            place=where,
            statistic=STATISTICS[first.statistic].label.lower(),
            site=first.site_label,
            seed=first.seed,
        )
    parts = [
        translated("in {seconds:.2f} s", seconds=measured.seconds),
        seed_words(measured.seeds),
    ]
    if predicted:
        parts.append(translated("theory {time:.0f} ms", time=1e3 * predicted.seconds))
    return text, " · ".join(parts)


def seed_words(seeds: Sequence[int]) -> str:
    """'seed 0' or 'seeds 0–2'."""
    if len(seeds) == 1:
        return translated("seed {seed}", seed=seeds[0])
    return translated("seeds {first}–{last}", first=seeds[0], last=seeds[-1])


def marks(profiles: Sequence[Profile]) -> list[str]:
    """Meaning of dots and lines, for those that are there."""
    counts = sorted({len(profile.seeds) for profile in profiles if profile.origin == "measured"})
    words = []
    if counts:
        seeds = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
        message = "● measured, {count} seeds; band: smallest to largest"
        if counts[-1] == 1:
            message = "● measured, {count} seed; band: smallest to largest"
        words.append(translated(message, count=seeds))
    predicted = [profile for profile in profiles if profile.origin == "predicted"]
    if any(profile.scatter for profile in predicted):
        words.append(translated("— predicted; outlined: two of three draws"))
    elif predicted:
        words.append(translated("— predicted"))
    return words


def design_words(config: Config) -> str:
    """A design in one line: its size, how it adds its branches, and its other differences from the
    default design."""
    said = ("n_layers", "d_model", "residual", *RESIDUALS[config.residual].uses)
    others = [name for name in differences(config, Config()) if name not in said]
    return " · ".join(
        filter(None, (model_words(config), residual_words(config), choice_words(config, others)))
    )


def residual_words(config: Config) -> str:
    """The residual rule of a design: 'x + α F(x), α = 1'."""
    rule = RESIDUALS[config.residual]
    alpha = f", α = {in_words(config.alpha)}" if "alpha" in rule.uses else ""
    return f"{rule.formula}{alpha}"
