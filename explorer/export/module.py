"""`torch_code`: a design as a file of torch, by itself. The file's text is `torch_model.py.jinja`;
its numbers are the design's, its functions the rows'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING

from explorer import text
from explorer.config import SETTING, Config, matching
from explorer.display import must_be
from explorer.export.layers import carried, classes, differs, named_factors
from explorer.export.written import Written, number, text_of
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.attention import DIVISORS
from explorer.schemes.distribution import DISTRIBUTIONS
from explorer.schemes.mlp import MLPS
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import STREAMS

F, X = Written("F"), Written("x")

if TYPE_CHECKING:
    from jinja2 import Template

ALWAYS = {
    "norm_placement",
    "norm",
    "residual",
    "attention",
    "attention_scale",
    "mlp",
    "activation",
    "scale_rule",
    "distribution",
}
"""Choices that the file always names; others where they differ from their default."""


def torch_code(config: Config) -> str:
    """A design as the text of one Python file that needs only torch, to be read as nanoGPT's
    model.py is.

    Norms, factors and sizes are written out for this design; nothing that it does not use is there.
    Standard deviations and factors are numbers, to twelve digits, for this depth and width. The
    file has a class `Transformer()` whose `forward` takes what the config's input is: embedded
    tokens `[batch, token, d_model]` of the config's second moment, or ids `[batch, token]` where it
    is text. It returns the last stream `[batch, token, d_model]`, or logits `[batch, token,
    vocabulary]` where the loss is that of the next character. Weights are drawn by the config's
    rules; parameters are named as those of `explorer.model.Transformer`, so that either loads the
    other's `state_dict()` and then gives the same output.

    Raises:
        TypeError: the config is none.
        ConfigError: the design mixes several streams, or the outputs of all earlier branches; or it
            has a row that cannot be written, which no row of today's tables is.

    Example:
        >>> code = ex.torch_code(ex.Config(n_layers=2))
        >>> "class Transformer" in code, "import torch" in code
        (True, True)
    """
    design = must_be(Config, "config", config).design
    if design.stream.mixes:
        able = " or ".join(name for name, row in STREAMS.items() if not row.mixes)
        raise config.refusal(
            f"{{stream}} must be {able} to be written as torch, because the file has one residual "
            "stream; got {stream=}"
        )
    for places in (design.sublayers[::2], design.sublayers[1::2]):
        if len({place.within for place in places}) > 1:
            raise config.refusal(
                "{norm_placement} must have the same norms within the branches of all layers, to be "
                "written as torch; got {norm_placement=}"
            )
    factors, passed = named_factors(design), carried(design)
    lines, layers = classes(design, factors)
    size, own = config.input_second_moment, design.token_part
    rates, small = design.factors("adam"), design.factors("epsilon")
    return template().render(
        config=config,
        design=design,
        mlp=MLPS[config.mlp],
        factors=factors,
        classes=lines,
        layers=layers,
        carried=passed,
        start=", ".join("None" if name == "v1" else "0.0" for name in passed),
        noise=noise(config),
        norm=norm(config),
        norms=design.final_norm
        or design.normalizes_heads
        or any(p.norms for p in design.sublayers),
        activation=activation(config),
        row_factor=row_factor(config),
        grouped=config.kv_heads != config.n_heads,
        vocabulary=len(text.prose().vocabulary) if design.reads_text else 0,
        readout=math.sqrt(design.readout_variance),
        character=math.sqrt(size * own / (design.readout_variance if design.tied else 1.0)),
        token=math.sqrt(own),
        position=math.sqrt(size * (1 - own)),
        rates={kind: (rate, small[kind]) for kind, rate in rates.items()},
    )


@cache
def template() -> Template:
    """The text of the file; jinja2 is imported when the first file is written, for the page starts
    without."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701
        finalize=lambda value: number(value) if isinstance(value, float) else value,
    )
    environment.filters.update(differs=differs, numbers=numbers, sqrt=math.sqrt)
    environment.globals.update(title=title, choices=choices, words=words)
    return environment.get_template("torch_model.py.jinja")


def numbers(values: Sequence[float]) -> str:
    """A list of numbers, on as many lines as it needs."""
    return fill(f"[{', '.join(map(number, values))}]", 100, subsequent_indent="    ")


# The rows' functions, written down.


def noise(config: Config) -> str:
    """A matrix of standard deviation `std`, from normal noise."""
    row = DISTRIBUTIONS[config.distribution]
    return written(config, "distribution", lambda: row.transform(Written("noise")) * Written("std"))


def activation(config: Config) -> str:
    """The MLP's nonlinearity at x, rescaled where the config says so."""
    factor = second_moment(config.activation) ** -0.5 if config.activation_rescaled else 1.0

    def value() -> Written:
        out: Written = ACTIVATIONS[config.activation].torch(F, X)
        return out if math.isclose(factor, 1, rel_tol=1e-7) else out * factor

    return written(config, "activation", value)


def norm(config: Config) -> str:
    """The norm, or the function in its place, at x."""
    design = config.design
    if design.point:
        return written(
            config, "norm", lambda: ACTIVATIONS[design.point].torch(F, config.norm_alpha * X)
        )
    kind = "layer" if design.centers else "rms"
    return f"F.{kind}_norm(x, x.shape[-1:], eps={number(config.norm_epsilon)})"


def written(config: Config, field: str, function: Callable[[], Written]) -> str:
    """The text of a row's function.

    Raises:
        ConfigError: it does what is not among the methods, functions and signs of `Written`.
    """
    try:
        return text_of(function())
    except TypeError as error:
        raise config.refusal(
            f"{{{field}}} must be made of a tensor's methods, functions of torch.nn.functional and "
            f"arithmetic with numbers, to be written as torch; got {{{field}=}}"
        ) from error


def row_factor(config: Config) -> float:
    """The s of the factor s ln n on the logits of a query that sees n keys; 0 where it is 1."""
    row, counts = DIVISORS[config.attention_scale].row, range(1, config.n_ctx + 1)
    if all(row(config, n) == 1 for n in counts):
        return 0.0
    scale = row(config, 2) / math.log(2)
    if any(not math.isclose(row(config, n), scale * math.log(n)) for n in counts):
        raise config.refusal(
            "{attention_scale} must have a factor of 1 or s ln n on each row, to be written as torch; "
            "got {attention_scale=}"
        )
    return scale


# Words of the file: which design it is, its choices with their sources, and its classes.


def title(config: Config) -> list[str]:
    """Paragraphs that name the design and its source."""
    name = matching(config)
    if not name:
        return ["A Transformer of this design:"]
    row = PRESETS[name]
    return [
        f"{row.title}: {row.words}",
        f"Source: {row.source}." + (f" {row.differs}" if row.differs else ""),
    ]


def choices(config: Config) -> list[str]:
    """Lines with each choice of the design."""
    names = [name for name, spec in Config.specs().items() if spec.about.group not in SETTING]
    lines = []
    for name in names:
        lines += wrap(words(config, name), 112, initial_indent="    ", subsequent_indent="        ")
    return lines


def words(config: Config, *names: str) -> str:
    """Label, formula and source of choices; those left out that make no difference or are usual."""
    said = []
    for name in names:
        spec, value = Config.specs()[name], getattr(config, name)
        shown = config.matters(name) and (name in ALWAYS or value != spec.default)
        if shown and spec.about.options:
            row = spec.about.options[value]
            source = f" ({row.source})" if row.source else ""
            said.append(f"{spec.about.label}: {row.formula}{source}")
    return "; ".join(said)
