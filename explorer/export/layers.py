"""Text of the layers: a class for each arrangement of norms, and the list of all layers."""

from __future__ import annotations

import math
import re

from explorer.config import Config
from explorer.export.attention import carries
from explorer.export.factors import factor
from explorer.export.mixing import MIXED, mixes, starts_by_number
from explorer.export.runs import Run, counts, kept, runs
from explorer.export.spelling import Symbol, bracketed, cited, doc, number, product
from explorer.export.template import fill
from explorer.export.weights import draws, times
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.attention import attends
from explorer.schemes.mlp import MLPS, readers
from explorer.schemes.placement import NORMS, PLACEMENTS, centers, placements, point
from explorer.schemes.residual import RESIDUALS, learned_shape, multipliers, profiles
from explorer.schemes.stream import stream

# Text of the MLP sublayer.


MLP = '''
class MLP(nn.Module):
    ${words}

    def __init__(self):
        super().__init__()
${draws}

    def forward(self, x):
        """[batch, token, d_model] to the same, through [batch, token, d_mlp]."""
        gate = ${gate}  #? gated
        hidden = ${hidden}
        hidden = norm(hidden)  #? norm_hidden
        return ${out}
'''
ACTIVATION = '''
def activation(x):
    ${words}
    return ${value}
'''


def mlp(config: Config) -> str:
    """The class MLP."""
    kind, matrices = MLPS[config.mlp], (*readers(config), "W_out")
    hidden = times(config, "x", "W_in")
    if kind.gated:
        shifted = f"({hidden} + {number(kind.shift)})" if kind.shift else bracketed(hidden)
        hidden = f"gate * {shifted}"
    flags = {"gated"} if kind.gated else set()
    return fill(MLP, flags | ({"norm_hidden"} if placements(config)[1].on_read else set()), {
        "words": doc(f"{cited(kind)}; φ is {ACTIVATIONS[config.activation].formula}."),
        "draws": draws(config, matrices), "out": times(config, "hidden", "W_out"),
        "gate": _activated(config, times(config, "x", "W_gate")) if kind.gated else "",
        "hidden": hidden if kind.gated else _activated(config, hidden),
    })


def _activated(config: Config, z: str) -> str:
    """Text of the activation of a value: of torch's own function where that is all."""
    if _rescaling(config) == 1 and len(re.findall(r"\bz\b", _bent(config, "z"))) == 1:
        return _bent(config, z)
    return f"activation({z})"


def _bent(config: Config, z: str) -> str:
    return str(ACTIVATIONS[config.activation].torch(Symbol("F"), Symbol(z, " + " in z)).written)


def _rescaling(config: Config) -> float:
    factor = second_moment(config.activation) ** -0.5 if config.activation_rescaled else 1.0
    return 1.0 if math.isclose(factor, 1, rel_tol=1e-7) else factor


def activation(config: Config) -> str:
    """The function of that name."""
    factor, row = _rescaling(config), ACTIVATIONS[config.activation]
    words = cited(row) + ("" if factor == 1 else ", times what gives it a unit second moment for x ~ N(0, 1)")
    value = row.torch(Symbol("F"), Symbol("x"))
    written = (value if factor == 1 else value * factor).written
    return fill(ACTIVATION, (), {"words": doc(words + "."), "value": written})


# Text of the norm, or of the function in its place.


NORM = '''
def norm(x):
    ${words}
    return ${value}
'''


def norm(config: Config) -> str:
    """The function of that name, over the last axis."""
    divide = "layer_norm" if centers(config) else "rms_norm"
    value = f"F.{divide}(x, x.shape[-1:], eps={number(config.norm_epsilon)})"
    if bend := point(config):
        value = ACTIVATIONS[bend].torch(Symbol("F"), Symbol(f"{number(config.norm_alpha)} * x", loose=True)).written
    return fill(NORM, (), {"words": doc(cited(NORMS[config.norm]) + "."), "value": value})


JOIN = '''
    def join(self, x, out, branch, moments):
        """ω x + F(x). A first pass has `moments`, of the input and of all branches so far, whose sum is ω²."""
        if moments:
            if len(moments) > 1:
                self.skip[branch] = sum(moments) ** 0.5
            moments.append(float(out.square().mean()))
        return self.skip[branch] * x + out
'''


def layer_class(config: Config, run: Run) -> str:
    """The class of a run's layers."""
    takes = ", number" if counts(config, run) else ""
    made = ["attention = Attention()"] * attends(config) + ["mlp = MLP()"]
    if mixes(config):
        made.append(f"mixing = {MIXED[mixes(config)]}({'number' * starts_by_number(config)})")
    shape = learned_shape(config)
    if shape is not None:
        made.append(f"alpha = nn.Parameter({_alpha(config, shape)})")
    lines = [f"class {run.name}(nn.Module):", f"    {doc(_words(config, run))}", "", f"    def __init__(self{takes}):",
             "        super().__init__()", *(f"        self.{line}" for line in made),
             *(f"        {line}" for line in kept(config, run)),
             *(['        self.register_buffer("skip", torch.ones(2))  # ω, set by the first pass'] * profiles(config)),
             "", *_forward(config, run), *(JOIN.rstrip().splitlines() if profiles(config) else [])]
    return "\n".join(lines)


def _alpha(config: Config, shape: tuple[int, ...]) -> str:
    written = ", ".join("D_MODEL" if index else str(size) for index, size in enumerate(shape))
    written, start = f"({written}{',' * (len(shape) == 1)})", multipliers(config).branch[0]
    return f"torch.full({written}, {number(start)})"


def _words(config: Config, run: Run) -> str:
    """Docstring of a class: the numbers of its layers, if not all, and the design's formulas."""
    rows = [PLACEMENTS[config.norm_placement], *([stream(config)] if stream(config).parallel else [])]
    if not RESIDUALS[config.residual].plain:
        rows.append(RESIDUALS[config.residual])
    of = [other.numbers for other in runs(config) if other.name == run.name]
    ends = [f" to {numbers[-1]}" if numbers[-1] < config.n_layers else " and on" for numbers in of]
    which = ", ".join(f"{numbers[0]}{end if len(numbers) > 1 else ''}" for numbers, end in zip(of, ends, strict=True))
    every = len(run.alike) == config.n_layers
    return ("" if every else f"Layer {which}: ") + "; ".join(map(cited, rows)) + "."


def _forward(config: Config, run: Run) -> list[str]:
    """The method `forward`."""
    state = {"streams": ("streams",), "outputs": ("x", "outputs"), "": ("x",)}[mixes(config)]
    passed = (*state, *carries(config))
    shape = "[stream, batch, token, d_model]" if passed[0] == "streams" else "[batch, token, d_model]"
    extra = f", and {', '.join(passed[1:])}" if passed[1:] else ""
    body = _parallel(config, run) if stream(config).parallel else [
        line for branch in (0, 1)[int(not attends(config)):] for line in _branch(config, run, branch)]
    return [f"    def forward(self, {', '.join(passed)}{', moments=()' * profiles(config)}):",
            f'        """{shape} to the same{extra}."""', *(f"        {line}" for line in body),
            f"        return {', '.join(passed)}"]


def _branch(config: Config, run: Run, branch: int) -> list[str]:
    """Lines of a sublayer, 0 for attention, 1 for the MLP."""
    place, mixed, index = placements(config)[2 * run.numbers[0] - 2 + branch], mixes(config), branch * attends(config)
    lines = [f"x, mix = self.mixing.read(streams, {index})"] if mixed == "streams" else []
    call, before = _call(config, read(config, run, branch), branch)
    lines += before
    if mixed:
        term = weighed(config, run, branch, call)
        added = {"streams": f"streams = self.mixing.write(streams, mix, {term})",
                 "outputs": f"outputs = [*outputs, {term}]"}[mixed]
        return [*lines, added, *([f"x = self.mixing.average(outputs, {index})"] if mixed == "outputs" else [])]
    if profiles(config):
        total = f"self.join(x, {f'norm({call})' if place.on_output else call}, {branch}, moments)"
    else:
        skip = factor(config, "skip", branch, run.alike).text
        total = weighed(config, run, branch, call) if skip == "0.0" else (
            f"{product(skip, 'x')} + {weighed(config, run, branch, call)}")
    return [*lines, f"x = norm({total})" if place.on_sum else f"x = {total}"]


def _parallel(config: Config, run: Run) -> list[str]:
    """Lines of both sublayers, which read the same."""
    reads = [read(config, run, branch) for branch in (0, 1)]
    lines = []
    if reads[0] == reads[1] != "x" and attends(config):
        lines, reads = [f"h = {reads[0]}"], ["h", "h"]
    terms = []
    for branch in (0, 1)[int(not attends(config)):]:
        call, before = _call(config, reads[branch], branch)
        lines += before
        terms.append(weighed(config, run, branch, call))
    return [*lines, f"x = {' + '.join(('x', *terms))}"]


def _call(config: Config, reads: str, branch: int) -> tuple[str, list[str]]:
    """Text of a branch's output, and the line that makes it, where attention gives more than that."""
    if branch == 1:
        return f"self.mlp({reads})", []
    passed = carries(config)
    if not passed:
        return f"self.attention({reads})", []
    return "out", [f"out, {', '.join(passed)} = self.attention({reads}, {', '.join(passed)})"]


def read(config: Config, run: Run, branch: int) -> str:
    """Text of a branch's input."""
    place = placements(config)[2 * run.numbers[0] - 2 + branch]
    return product(factor(config, "scale", branch, run.alike).text, "norm(x)") if place.on_input else "x"


def weighed(config: Config, run: Run, branch: int, out: str) -> str:
    """Text of a branch's term of the sum."""
    place, shape = placements(config)[2 * run.numbers[0] - 2 + branch], learned_shape(config)
    out = f"norm({out})" if place.on_output else out
    if shape is not None:
        return f"self.alpha{f'[{branch}]' if shape else ''} * {out}"
    return product(factor(config, "branch", branch, run.alike).text, out)
