"""Python scripts that give the same numbers as the page. Pure text: nothing is computed here.

Every value is written as `repr` has it, so that a float is the same float and a name stays a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent

from explorer.config import Config, preset
from explorer.schemes.preset import PRESETS
from explorer.vocabulary import STATISTICS

LONGEST = 100
"""Letters of a line; a call that is longer has an argument a line."""


def design(config: Config) -> str:
    """The shortest call that makes a config: a named design with changes, or the changes alone."""
    return min((call("ex.Config", config.changed), *_presets(config)), key=len)


def _presets(config: Config) -> list[str]:
    bases = {name: preset(name) for name in PRESETS}
    return [
        call(
            "ex.preset",
            {field: value for field, value in config if value != getattr(base, field)},
            written(name),
        )
        for name, base in bases.items()
    ]


def call(name: str, fields: Mapping[str, object], *first: str) -> str:
    """A call with keyword arguments, broken into lines where it is long."""
    arguments = [*first, *(f"{field}={written(value)}" for field, value in fields.items())]
    return listed(f"{name}(", arguments, ")")


def written(value: object) -> str:
    """A value as `repr` has it, a text in double quotes where that needs no more escapes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if text.startswith("'") and not {'"', "\\"} & set(text) else text


def listed(begin: str, parts: Sequence[str], end: str) -> str:
    """Parts in one line, or a part a line where that is too long or a part has several itself."""
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= LONGEST - 20 and "\n" not in line:
        return line
    return "\n".join([begin, *(indent(f"{part},", "    ") for part in parts), end])


def explore(
    config: Config,
    pins: Mapping[str, Config],
    statistic: str = "second_moment",
    pattern_of: tuple[int, int] = (1, 0),
    layer: int = 0,
) -> str:
    """The script of the Explore page: its design and its pins, measured, predicted and drawn.

    Args:
        pins: name to design, in the order of the page.
        statistic: drawn by the last line, as by `Profile.plot`.
        pattern_of: layer and head whose attention pattern is kept.
        layer: whose tokens are drawn, of a statistic by position; 0 is the last one.
    """
    kept = f", pattern_of={pattern_of}" if pattern_of != (1, 0) else ""
    lines = [
        "import explorer as ex",
        "",
        f"design = {design(config)}",
        f"measured = ex.measure(design{kept})",
        "predicted = ex.predict(design)",
        "print(ex.diagnose(measured))",
    ]
    others, shown = "", f", layer={layer}" if layer and STATISTICS[statistic].by_position else ""
    if pins:
        entries = [f"{written(name)}: {design(pin)}" for name, pin in pins.items()]
        lines += [
            "",
            f"pins = {listed('{', entries, '}')}",
            "pinned = {name: ex.measure(pin) for name, pin in pins.items()}",
        ]
        others = ", *pinned.values()"
    return "\n".join(
        [*lines, "", f"measured.plot({written(statistic)}, predicted{others}{shown}).show()", ""]
    )


def sweep(
    config: Config,
    over: Mapping[str, Sequence[float]],
    statistics: Sequence[str],
    origins: Sequence[str],
    settings: str = "",
) -> str:
    """The script of a map.

    Args:
        over: field to its values.
        statistics: end values; none where all of an origin's are asked for.
        origins: where the cells' numbers come from.
        settings: of the origin, a call; empty where it has none.
    """
    axes = listed(
        "{",
        [
            f"{written(name)}: {listed('[', [*map(written, values)], ']')}"
            for name, values in over.items()
        ],
        "}",
    )
    rest = [
        *([f"statistics={listed('[', [*map(written, statistics)], ']')}"] if statistics else []),
        f"origins={listed('[', [*map(written, origins)], ']')}",
        *([f"settings={settings}"] if settings else []),
    ]
    whole = listed("cells = ex.sweep(", [design(config), f"over={axes}", *rest], ")")
    return "\n".join(["import explorer as ex", "", whole, "print(cells)", ""])
