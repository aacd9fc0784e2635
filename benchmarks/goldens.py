"""Goldens: predictions, files of torch, links, figures and verdicts as they are today, for a
redesign to keep.

    python -m benchmarks.goldens
        # writes benchmarks/goldens.json.gz; say in the commit why anything in it changed

`tests/test_goldens.py` computes all of it anew: text must be equal, numbers to a relative 1e-9.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

import explorer as ex
from explorer.app.link.links import Links
from explorer.app.page import ExplorePart, Page
from explorer.app.roster import Entry
from explorer.app.tabs import tabs
from explorer.choices import Choices
from explorer.figures import BY_CHOICE, FIGURES, row_of

FILE = Path(__file__).with_name("goldens.json.gz")
ACCURACY = Path(__file__).parent.parent / "docs" / "accuracy.csv"
PRESETS = [ex.preset(name) for name in ex.PRESETS]
N_LINKS, N_FIGURES, N_VERDICTS = 200, 40, 30
EVERY = 6
SICK: tuple[dict[str, Any], ...] = (
    {"n_layers": 48},
    {"init_variance": 4.0},
    {"attention_scale": "none"},
    {"alpha": 4.0},
    {"n_layers": 3},
)
"""Changes to the presets that a verdict speaks of."""


def measured_designs() -> Iterator[ex.Config]:
    """Every design of the accuracy table, once."""
    known = ex.Config.specs()
    with ACCURACY.open(newline="", encoding="utf-8") as file:
        rows = {
            tuple((name, text) for name, text in row.items() if name in known)
            for row in csv.DictReader(file)
        }
    for row in sorted(rows):
        yield ex.Config(**{name: _value(text, known[name].default) for name, text in row})


def _value(text: str, default: object) -> object:
    if isinstance(default, bool):
        return text == "True"
    return text if isinstance(default, str) else type(default)(float(text))  # type: ignore[call-overload]


def name(config: ex.Config) -> str:
    """A design by the fields in which it differs from the default."""
    return json.dumps(config.changed, sort_keys=True)


def prediction(config: ex.Config) -> dict[str, list[float]]:
    """Of each statistic at each site the first layer, the middle one, the last one, and the
    mean."""
    profile = ex.predict(config)
    return {
        f"{statistic} {site}": [
            *(values.reshape(values.shape[1], -1).mean(axis=1)[[0, values.shape[1] // 2, -1]]),
            values.mean(),
        ]
        for (statistic, site), values in profile.values.items()
    }


def links() -> dict[str, Any]:
    """Links of random designs, half of them with a pin, and the page's record that each opens."""
    draw, codec, made = random.Random(1), Links(tabs()), {}  # noqa: S311 - not for secrets
    while len(made) < N_LINKS:
        config = random_design(draw)
        pins = (Entry(draw.choice(PRESETS)),) if draw.random() < 0.5 else ()
        link = codec.write(Page("explore", {"explore": ExplorePart(config, pins)}))
        made[link] = codec.parse(link)
    return made


def random_design(draw: random.Random, n_fields: int = 3) -> ex.Config:
    """A preset with some fields drawn at random; where they exclude each other, all is drawn
    again."""
    while True:
        config = draw.choice(PRESETS)
        try:
            for item in draw.sample(
                [spec for spec in ex.Config.specs().values() if spec.kind != "text"], n_fields
            ):
                value: Any = (
                    draw.choice(item.choices)
                    if item.choices
                    else (
                        draw.random() < 0.5
                        if item.kind == "switch"
                        else draw.uniform(item.low, min(item.high, 1e4))
                    )
                )
                config = config.replace(
                    **{item.name: round(value) if item.kind == "integer" else value}
                )
        except ex.ConfigError:
            continue
        return config


def figures() -> dict[str, Any]:
    """Some figures of predicted profiles, one in `EVERY`: which ones, a sum of their names says, so
    that a new figure takes no other's place."""
    drawn = {}
    for config in PRESETS[:N_FIGURES]:
        profile = ex.predict(config)
        for row in map(row_of, dict.fromkeys((*FIGURES, *BY_CHOICE))):
            title = f"{row.name} of {name(config)}"
            chosen = zlib.crc32(title.encode()) % EVERY == 0
            if chosen and row.statistic and row.statistic in profile:
                drawn[title] = row.draw([profile]).to_plotly_json()
    return drawn


def verdicts() -> dict[str, str]:
    """Verdicts on presets that were changed for the worse."""
    made = {}
    for index, config in enumerate(PRESETS):
        try:
            config = config.replace(**SICK[index % len(SICK)])
        except ex.ConfigError:
            continue
        made[name(config)] = str(ex.diagnose(ex.predict(config)))
    return dict(list(made.items())[:N_VERDICTS])


def torch_file(config: ex.Config) -> str:
    """The file of torch of a design, or the sentence that refuses it."""
    try:
        return ex.torch_code(config)
    except ex.ConfigError as error:
        return str(error)


SECTIONS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "predictions": lambda: {name(config): prediction(config) for config in measured_designs()},
    "torch": lambda: {
        title: torch_file(config) for title, config in zip(ex.PRESETS, PRESETS, strict=True)
    },
    "links": links,
    "figures": figures,
    "verdicts": verdicts,
}


def plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, Mapping) and "bdata" in value:  # an array as plotly sends it
        return plain(np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"]))
    if isinstance(value, Choices):
        return plain(value.changed)
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    return (
        float(value)
        if isinstance(value, np.floating)
        else value.item()
        if isinstance(value, np.generic)
        else value
    )


def stored() -> dict[str, Any]:
    """What was written last."""
    return dict(json.loads(gzip.decompress(FILE.read_bytes())))


if __name__ == "__main__":
    text = json.dumps(
        {title: plain(section()) for title, section in SECTIONS.items()}, ensure_ascii=False
    )
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")
