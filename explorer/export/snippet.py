"""Python scripts that give the same numbers as the page. Pure text: nothing is computed here.

Every value is written as `repr` has it, so that a float is the same float and a name stays a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent

from explorer.config import Config, preset
from explorer.profile import STATISTICS
from explorer.schemes.preset import PRESETS
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task

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


def race(
    contenders: Sequence[tuple[str, Config, Recipe]],
    task: Task,
    steps: int,
    every: int,
    *,
    own_text: bool = False,
    spectra: bool = False,
    positions: bool = False,
) -> str:
    """The script of a race, from its first step.

    Args:
        contenders: name, design and recipe of each.
        own_text: whether it learns a file of a person's own, whose place only they know.
        spectra: whether singular values of the updates are read, too.
        positions: whether statistics by token position are read, too.
    """
    runs = [
        listed(
            "ex.Contender(",
            [written(name), design(config), call("ex.Recipe", recipe.changed)],
            ")",
        )
        for name, config, recipe in contenders
    ]
    rest = [
        f"task={call('ex.Task', task.changed)}",
        f"steps={steps}",
        f"every={every}",
        *(["text=text"] * own_text),
        *(["spectra=True"] * spectra),
        *(["positions=True"] * positions),
    ]
    text = (
        ["from explorer.text import load", "", 'text = load("the file that was learned.txt")']
        if own_text
        else [""]
    )
    whole = listed("race = ex.race(", [listed("[", runs, "]"), *rest], ")")
    return "\n".join(
        [
            "import explorer as ex",
            *text,
            whole,
            "for outcome in race.verdict():",
            "    print(outcome)",
            'race.plot("held_out_loss").show()',
            "",
        ]
    )


def sweep(
    config: Config,
    over: Mapping[str, Sequence[float]],
    statistics: Sequence[str],
    origins: Sequence[str],
    steps: int | None = None,
) -> str:
    """The script of a map.

    Args:
        over: field to its values.
        statistics: end values; none where those of a training are asked for.
        origins: where the cells' numbers come from.
        steps: of training; None where nothing is trained.
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
        *([] if steps is None else [f"steps={steps}"]),
    ]
    whole = listed("cells = ex.sweep(", [design(config), f"over={axes}", *rest], ")")
    return "\n".join(["import explorer as ex", "", whole, "print(cells)", ""])
