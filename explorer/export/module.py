"""`torch_code`: a design as a file of torch, by itself. The file's text is `torch_model.py.jinja`."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from explorer import text
from explorer.config import Config
from explorer.display import must_be
from explorer.export import formulas, heading, layers
from explorer.export.formulas import number, product, root, text_of
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.attention import attends, divisor, gates, inherits, joins, row_factors, sink
from explorer.schemes.data import predicts_text, reads_text, ties
from explorer.schemes.distribution import DISTRIBUTIONS, copies, shares
from explorer.schemes.mlp import MLPS
from explorer.schemes.parametrization import PARAMETRIZATIONS, scales_forward
from explorer.schemes.placement import NORMS, centers, has_final_norm, normalizes_heads, placements, point
from explorer.schemes.position import embeds, own_part, rotated, rotates, slopes
from explorer.schemes.residual import learned_shape, multipliers, profiles
from explorer.schemes.scale import SCALE_RULES, biases, shapes
from explorer.schemes.stream import STREAMS, stream

if TYPE_CHECKING:
    from jinja2 import Template

LONGEST = 30
"""Letters of a matrix's factor that has no name of its own."""


def torch_code(config: Config) -> str:
    """A design as the text of one Python file that needs only torch, to be read as nanoGPT's model.py is.

    Norms, factors and sizes are written out for this design; nothing that it does not use is there. The file has a
    class `Transformer()` whose `forward` takes what the config's input is: embedded tokens `[batch, token, d_model]`
    of the config's second moment, or ids `[batch, token]` where it is text. It returns the last stream
    `[batch, token, d_model]`, or logits `[batch, token, vocabulary]` where the loss is that of the next character.
    Weights are drawn by the config's rules; parameters are named as those of `explorer.model.Transformer`, so that
    either loads the other's `state_dict()` and then gives the same output.

    Raises:
        TypeError: the config is none.
        ConfigError: the design mixes several streams, or the outputs of all earlier branches; or it has a row that
            `formulas` cannot write, which no row of today's tables is.
    """
    must_be(Config, "config", config)
    if stream(config).mixes:
        able = " or ".join(name for name, row in STREAMS.items() if not row.mixes)
        raise config.refusal(f"{{stream}} must be {able} to be written as torch, because the file has one residual "
                             "stream; got {stream=}")
    for places in (placements(config)[::2], placements(config)[1::2]):
        if len({(place.on_heads, place.on_read) for place in places}) > 1:
            raise config.refusal("{norm_placement} must have the same norms within the branches of all layers, to be "
                                 "written as torch; got {norm_placement=}")
    written = template().render(config=config, heading=heading, **_weights(config), **_functions(config),
                                **_attention(config), **_layers(config), **_ends(config))
    return written if "math." in written else written.replace("import math\n\n", "", 1)


@cache
def template() -> Template:
    """The text of the file; jinja2 is imported when the first file is written, for the page starts without."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True,
        trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701 - Python, not HTML
    environment.filters["number"] = number
    return environment.get_template("torch_model.py.jinja")


class Matrix(NamedTuple):
    """A matrix of the layers."""

    shape: str
    """fan_out and fan_in."""
    factor: str
    """On the scale rule's standard deviation: text or a name; empty where it is 1."""


def _weights(config: Config) -> dict[str, Any]:
    """How the matrices of the layers are drawn."""
    factors = {name: formulas.matrix_factor(config, name) for name in shapes(config)}
    users: dict[str, list[str]] = {}
    for name, factor in factors.items():
        users.setdefault(factor, []).append(name.removeprefix("W_").upper())
    named = {factor: f"FACTOR_{'_'.join(names)}" for factor, names in users.items() if len(factor) > LONGEST}
    return {
        "matrices": {name: Matrix(", ".join(shape), named.get(factors[name], factors[name]))
                     for name, shape in formulas.written_shapes(config).items()},
        "matrix_factors": named, "factors": any(factors.values()), "biases": set(biases(config)),
        "scales_forward": scales_forward(config), "deviation": formulas.DEVIATIONS.get(config.scale_rule, ""),
        "scale_words": heading.described(SCALE_RULES[config.scale_rule]),
        "noise": text_of(config, "distribution", formulas.NOISE),
        "distribution": DISTRIBUTIONS[config.distribution].formula,
    }


def _functions(config: Config) -> dict[str, Any]:
    """Norm, activation and MLP."""
    kind, phi = MLPS[config.mlp], ACTIVATIONS[config.activation]
    rescaling = number(second_moment(config.activation) ** -0.5) if config.activation_rescaled else "1.0"
    rescaled = not math.isclose(float(rescaling), 1, rel_tol=1e-7)
    value = text_of(config, "activation", formulas.ACTIVATIONS)
    inlined = not rescaled and value.count("{x}") == 1
    sublayers = placements(config) if attends(config) else placements(config)[1::2]
    norms = has_final_norm(config) or any(place.any for place in sublayers) or (attends(config) and config.qk_norm)
    return {
        "norm": _norm(config) if norms else "", "norm_words": heading.described(NORMS[config.norm]),
        "activation": "" if inlined else value.format(x="x") + f" * {rescaling}" * rescaled,
        "activated": value if inlined else "activation({x})",
        "activation_words": heading.described(phi)
        + ", times what gives it a unit second moment for x ~ N(0, 1)" * rescaled,
        "mlp": kind, "mlp_words": f"{heading.described(kind)}; φ is {phi.formula}", "mlp_place": placements(config)[1],
    }


def _norm(config: Config) -> str:
    """The value of the norm, or of the function in its place, at x."""
    if bend := point(config):
        return formulas.ACTIVATIONS[bend].format(x=f"({number(config.norm_alpha)} * x)")
    return f"F.{'layer' if centers(config) else 'rms'}_norm(x, x.shape[-1:], eps={number(config.norm_epsilon)})"


def _attention(config: Config) -> dict[str, Any]:
    """Flags and numbers of the attention sublayer."""
    written = formulas.DIVISORS.get(config.attention_scale, number(divisor(config)))
    needs_logits = sink(config).logit is not None or slopes(config) or config.logit_cap or inherits(config) == "scores"
    scale = {"math.sqrt(D_HEAD)": "", "": ", scale=1.0"}.get(written, f", scale=1 / {written}")
    grouped = config.kv_heads != config.n_heads
    turned = "D_HEAD" if config.rope_fraction == 1 else f"round({number(config.rope_fraction)} * D_HEAD)"
    return {
        "attends": attends(config), "grouped": grouped, "gates": gates(config),
        "attention_place": placements(config)[0], "joins_heads": joins(config),
        "normalizes_heads": normalizes_heads(config) and not joins(config),
        "rotates": rotates(config), "rotates_part": rotated(config) < config.d_head, "half": f"{turned} // 2",
        "divisor": written, "row_factor": _row_factor(config), "inherits": inherits(config), "sink": sink(config),
        "slopes": _slopes(config), "fused": not needs_logits,
        "fused_options": ", is_causal=True" * config.causal + scale + ", enable_gqa=True" * grouped,
    }


def _slopes(config: Config) -> str:
    """Each head's slope; empty where there are none."""
    lower = 1 << (config.n_heads.bit_length() - 1)
    if not slopes(config):
        return ""
    if lower == config.n_heads:
        return "2.0 ** (-8 * torch.arange(1, N_HEADS + 1) / N_HEADS)"
    steps = f"[*range(2, {2 * lower + 1}, 2), *range(1, {2 * lower}, 2)]"
    return f"2.0 ** (-4 * torch.tensor({steps}[:N_HEADS]) / {lower})"


def _row_factor(config: Config) -> str:
    """Factor on the queries: s ln n, n the keys that a row sees; empty where it is 1."""
    if set(row_factors(config, config.n_ctx)) == {1.0}:
        return ""
    if config.attention_scale != "ssmax":
        raise config.refusal("{attention_scale} must have a factor of 1 or s ln n on each row, to be written as torch; "
                             "got {attention_scale=}")
    keys = "torch.arange(1, T + 1, device=x.device).log()[:, None]" if config.causal else "math.log(T)"
    return f"{number(config.ssmax_scale)} * {keys}"


def _layers(config: Config) -> dict[str, Any]:
    """The classes of the layers, and what passes from one to the next."""
    shape, passed = learned_shape(config), layers.carried(config)
    alpha = "" if shape is None else (
        f"torch.full({('()', '(2,)', '(2, D_MODEL)')[len(shape)]}, {number(multipliers(config).branch[0])})")
    return {
        "layers": layers.layer_classes(config), "layer_factors": layers.named_factors(config),
        "scales_by_number": layers.scales_by_number(config), "profiles": profiles(config), "alpha": alpha,
        "copies": copies(config), "shares": shares(config),
        "learned": ["attention"] * attends(config) + ["mlp"] + ["alpha"] * bool(alpha),
        "carried": list(passed), "start": ", ".join("None" if name == "v1" else "0.0" for name in passed),
    }


def _ends(config: Config) -> dict[str, Any]:
    """Sizes, embedding and readout, and the learning rates that the parametrization asks for."""
    ratio, row = number(config.mlp_ratio), PARAMETRIZATIONS[config.parametrization]
    own = own_part(config)
    rates = {kind: [formulas.power_of_size(config, power) or "1" for power in (powers.adam, powers.epsilon)]
             for kind, powers in row.powers.items()}
    return {
        "d_mlp": f"{ratio[:-2]} * D_MODEL" if ratio.endswith(".0") else f"round({ratio} * D_MODEL)",
        "vocabulary": len(text.prose().vocabulary) if reads_text(config) else 0,
        "reads_text": reads_text(config), "predicts_text": predicts_text(config), "ties": ties(config),
        "embeds": embeds(config), "final_norm": has_final_norm(config),
        "input_size": _times(number(math.sqrt(config.input_second_moment))),
        "embedding_size": _times(formulas.embedding_factor(config)),
        "token_size": _times("" if reads_text(config) else root(own)),
        "place_size": _times(root(config.input_second_moment * (1 - own))) if embeds(config) else "",
        "readout": formulas.readout_deviation(config), "rate_words": heading.described(row),
        "rates": rates if any(rate != ["1", "1"] for rate in rates.values()) else {},
    }


def _times(factor: str) -> str:
    """A factor before what it multiplies."""
    return f"{factor} * " if product(factor) else ""
