"""`torch_code`: a design as a file of torch, by itself. The file's text is
`torch_model.py.jinja`."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from explorer import text
from explorer.config import Config, matching
from explorer.display import must_be
from explorer.export import formulas
from explorer.export.formulas import LayerClass, number, product, root, text_of
from explorer.fields import Option
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.attention import DIVISORS
from explorer.schemes.distribution import DISTRIBUTIONS
from explorer.schemes.mlp import MLPS
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.schemes.placement import NORMS, PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS, STREAMS
from explorer.schemes.scale import SCALE_RULES

if TYPE_CHECKING:
    from jinja2 import Template

LONGEST = 30
"""Letters of a matrix's factor that has no name of its own."""
ALWAYS = ("norm_placement", "norm", "residual", "attention", "mlp", "activation", "scale_rule")
"""Choices that the docstring always names; others where they differ from their default."""
ELSEWHERE = ("Size", "Input and loss")
"""Groups of fields that are no part of a design."""


def torch_code(config: Config) -> str:
    """A design as the text of one Python file that needs only torch, to be read as nanoGPT's
    model.py is.

    Norms, factors and sizes are written out for this design; nothing that it does not use is there.
    The file has a class `Transformer()` whose `forward` takes what the config's input is: embedded
    tokens `[batch, token, d_model]` of the config's second moment, or ids `[batch, token]` where it
    is text. It returns the last stream `[batch, token, d_model]`, or logits `[batch, token,
    vocabulary]` where the loss is that of the next character. Weights are drawn by the config's
    rules; parameters are named as those of `explorer.model.Transformer`, so that either loads the
    other's `state_dict()` and then gives the same output.

    Raises:
        TypeError: the config is none.
        ConfigError: the design mixes several streams, or the outputs of all earlier branches; or it
            has a row that `formulas` cannot write, which no row of today's tables is.
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
    written = template().render(
        config=config,
        design=design,
        **_weights(config),
        **_functions(config),
        **_attention(config),
        **_layers(config),
        **_ends(config),
    )
    return written if "math." in written else written.replace("import math\n\n", "", 1)


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
    )
    environment.filters["number"] = number
    environment.globals.update(
        title=title, choices=choices, attention_words=attention_words, layer_words=layer_words
    )
    return environment.get_template("torch_model.py.jinja")


def _weights(config: Config) -> dict[str, Any]:
    """How the matrices of the layers are drawn."""
    design = config.design
    factors = {name: formulas.matrix_factor(config, name) for name in design.shapes}
    users: dict[str, list[str]] = {}
    for name, factor in factors.items():
        users.setdefault(factor, []).append(name.removeprefix("W_").upper())
    named = {
        factor: f"FACTOR_{'_'.join(names)}"
        for factor, names in users.items()
        if len(factor) > LONGEST
    }
    return {
        "matrices": {
            name: {"shape": ", ".join(shape), "factor": named.get(factors[name], factors[name])}
            for name, shape in formulas.written_shapes(config).items()
        },
        "matrix_factors": named,
        "factors": any(factors.values()),
        "biases": set(design.biases),
        "deviation": formulas.DEVIATIONS.get(config.scale_rule, ""),
        "scale_words": described(SCALE_RULES[config.scale_rule]),
        "last_by_layer": text_of(config, "scale_rule", formulas.LAST_BY_LAYER)
        if design.differs_by_layer
        else "",
        "noise": text_of(config, "distribution", formulas.NOISE),
        "distribution": DISTRIBUTIONS[config.distribution].formula,
    }


def _functions(config: Config) -> dict[str, Any]:
    """Norm, activation and MLP."""
    design = config.design
    kind, phi = MLPS[config.mlp], ACTIVATIONS[config.activation]
    rescaling = (
        number(second_moment(config.activation) ** -0.5) if config.activation_rescaled else "1.0"
    )
    rescaled = not math.isclose(float(rescaling), 1, rel_tol=1e-7)
    value = text_of(config, "activation", formulas.ACTIVATIONS)
    inlined = not rescaled and value.count("{x}") == 1
    sublayers = design.sublayers if design.attends else design.sublayers[1::2]
    norms = (
        design.final_norm
        or any(place.norms for place in sublayers)
        or (design.attends and config.qk_norm)
    )
    return {
        "norm": _norm(config) if norms else "",
        "norm_words": described(NORMS[config.norm]),
        "activation": "" if inlined else value.format(x="x") + f" * {rescaling}" * rescaled,
        "activated": value if inlined else "activation({x})",
        "activation_words": described(phi)
        + ", times what gives it a unit second moment for x ~ N(0, 1)" * rescaled,
        "mlp": kind,
        "mlp_words": f"{described(kind)}; φ is {phi.formula}",
    }


def _norm(config: Config) -> str:
    """The value of the norm, or of the function in its place, at x."""
    design = config.design
    if bend := design.point:
        return formulas.ACTIVATIONS[bend].format(x=f"({number(config.norm_alpha)} * x)")
    return f"F.{'layer' if design.centers else 'rms'}_norm(x, x.shape[-1:], eps={number(config.norm_epsilon)})"


def _attention(config: Config) -> dict[str, Any]:
    """Flags and numbers of the attention sublayer."""
    design = config.design
    written = formulas.DIVISORS.get(config.attention_scale, number(design.divisor))
    needs_logits = (
        design.sink.logit is not None
        or design.slopes
        or config.logit_cap
        or design.inherits == "scores"
    )
    scale = {"math.sqrt(D_HEAD)": "", "": ", scale=1.0"}.get(written, f", scale=1 / {written}")
    grouped = config.kv_heads != config.n_heads
    turned = (
        "D_HEAD" if config.rope_fraction == 1 else f"round({number(config.rope_fraction)} * D_HEAD)"
    )
    return {
        "grouped": grouped,
        "normalizes_heads": design.normalizes_heads and not design.joins,
        "rotates_part": design.rotated < config.d_head,
        "half": f"{turned} // 2",
        "divisor": written,
        "row_factor": _row_factor(config),
        "slopes": _slopes(config),
        "fused": not needs_logits,
        "fused_options": ", is_causal=True" * config.causal + scale + ", enable_gqa=True" * grouped,
    }


def _slopes(config: Config) -> str:
    """Each head's slope; empty where there are none."""
    lower = 1 << (config.n_heads.bit_length() - 1)
    if not config.design.slopes:
        return ""
    if lower == config.n_heads:
        return "2.0 ** (-8 * torch.arange(1, N_HEADS + 1) / N_HEADS)"
    steps = f"[*range(2, {2 * lower + 1}, 2), *range(1, {2 * lower}, 2)]"
    return f"2.0 ** (-4 * torch.tensor({steps}[:N_HEADS]) / {lower})"


def _row_factor(config: Config) -> str:
    """Factor on the queries: s ln n, n the keys that a row sees; empty where it is 1."""
    if set(config.design.row_factors) == {1.0}:
        return ""
    row = DIVISORS[config.attention_scale]
    if "ssmax_scale" not in row.uses:
        raise config.refusal(
            "{attention_scale} must have a factor of 1 or s ln n on each row, to be written as torch; "
            "got {attention_scale=}"
        )
    keys = (
        "torch.arange(1, T + 1, device=x.device).log()[:, None]" if config.causal else "math.log(T)"
    )
    return f"{number(config.ssmax_scale)} * {keys}"


def _layers(config: Config) -> dict[str, Any]:
    """The classes of the layers, and what passes from one to the next."""
    design = config.design
    shape, passed = design.alpha_shape, formulas.carried(config)
    alpha = (
        ""
        if shape is None
        else (
            f"torch.full({('()', '(2,)', '(2, D_MODEL)')[len(shape)]}, {number(design.branches[0])})"
        )
    )
    return {
        "layers": formulas.layer_classes(config),
        "layer_factors": formulas.named_factors(config),
        "scales_by_number": formulas.scales_by_number(config),
        "alpha": alpha,
        "learned": ["attention"] * design.attends + ["mlp"] + ["alpha"] * bool(alpha),
        "carried": list(passed),
        "start": ", ".join("None" if name == "v1" else "0.0" for name in passed),
    }


def _ends(config: Config) -> dict[str, Any]:
    """Sizes, embedding and readout, and the learning rates that the parametrization asks for."""
    design = config.design
    ratio, row = number(config.mlp_ratio), PARAMETRIZATIONS[config.parametrization]
    own = design.token_part
    rates = {
        kind: [
            formulas.power_of_size(config, power) or "1" for power in (powers.adam, powers.epsilon)
        ]
        for kind, powers in row.powers.items()
    }
    return {
        "d_mlp": f"{ratio[:-2]} * D_MODEL" if ratio.endswith(".0") else f"round({ratio} * D_MODEL)",
        "vocabulary": len(text.prose().vocabulary) if design.reads_text else 0,
        "input_size": _times(number(math.sqrt(config.input_second_moment))),
        "embedding_size": _times(formulas.embedding_factor(config)),
        "token_size": _times("" if design.reads_text else root(own)),
        "place_size": _times(root(config.input_second_moment * (1 - own)))
        if design.embeds_positions
        else "",
        "readout": formulas.readout_deviation(config),
        "rate_words": described(row),
        "rates": rates if any(rate != ["1", "1"] for rate in rates.values()) else {},
    }


def _times(factor: str) -> str:
    """A factor before what it multiplies."""
    return f"{factor} * " if product(factor) else ""


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


def described(row: Option) -> str:
    """A row's formula, and its source where there is one."""
    return f"{row.formula} ({row.source})" if row.source else row.formula


def choices(config: Config) -> list[str]:
    """Lines with the label, the formula and the source of each choice of the design."""
    lines = []
    for name, spec in Config.specs().items():
        value = getattr(config, name)
        shown = config.matters(name) and (name in ALWAYS or value != spec.default)
        if shown and spec.about.options and spec.about.group not in ELSEWHERE:
            words = f"{spec.about.label}: {described(spec.about.options[value])}"
            lines += wrap(words, 112, initial_indent="    ", subsequent_indent="        ")
    return lines


def attention_words(config: Config) -> str:
    """The formulas that differ from plain attention, and their sources."""
    design = config.design
    fields = ["residual_attention", "sink", "attention_gate"] + ["position"] * bool(
        design.slopes or design.rotates
    )
    specs = Config.specs()
    chosen = [
        specs[name].about.options[getattr(config, name)]
        for name in fields
        if getattr(config, name) != specs[name].default
    ]
    rows = [DIVISORS[config.attention_scale], *chosen]
    return (
        f"Self-attention{', causal' if config.causal else ''}: {'; '.join(map(described, rows))}."
    )


def layer_words(config: Config, layer: LayerClass) -> str:
    """The numbers of a class's layers, if not all, and the formulas of norm placement, stream and
    residual."""
    design = config.design
    rows = [PLACEMENTS[config.norm_placement], *([design.stream] if design.stream.parallel else [])]
    if not RESIDUALS[config.residual].plain:
        rows.append(RESIDUALS[config.residual])
    return (f"{layer.numbers}: " if layer.numbers else "") + "; ".join(map(described, rows)) + "."
