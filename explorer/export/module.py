"""`torch_module`: a design as a file of torch, by itself."""

from __future__ import annotations

import re

from explorer.config import Config
from explorer.display import must_be
from explorer.export.attention import attention
from explorer.export.heading import constants, docstring
from explorer.export.layers import activation, layer_class, mlp, norm
from explorer.export.mixing import mixing
from explorer.export.positions import rotate
from explorer.export.runs import runs
from explorer.export.spelling import cited, product
from explorer.export.stack import stack
from explorer.export.template import fill, used
from explorer.export.weights import helpers
from explorer.schemes.attention import attends
from explorer.schemes.parametrization import BASE_WIDTH, PARAMETRIZATIONS, SAME, Power
from explorer.schemes.placement import placements

# Text of the learning rates that a parametrization asks for.


GROUPS = '''
def adam_groups(model, lr, eps=1e-8):
    """Parameter groups for torch.optim.Adam: this parametrization has multiples of lr and eps for each kind.

    ${source}.
    """
    multiples = {  # of lr, and of eps
${multiples}
    }
    groups = {kind: {"params": [], "lr": lr * rate, "eps": eps * small} for kind, (rate, small) in multiples.items()}
    for path, parameter in model.named_parameters():
        *place, name = path.split(".")
        if parameter.ndim < 2 or (place and not name.startswith("W_")):
            kind = "vector"
        else:
            kind = "hidden" if place else "output" if name == "W_U" else "input"
        groups[kind]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]
'''


def rates(config: Config) -> str:
    """The function `adam_groups`; empty where all parameters have one learning rate."""
    row = PARAMETRIZATIONS[config.parametrization]
    if all((powers.adam, powers.epsilon) == (SAME, SAME) for powers in row.powers.values()):
        return ""
    lines = [f'        "{kind}": ({_power(config, powers.adam)}, {_power(config, powers.epsilon)}),'
             for kind, powers in row.powers.items()]
    return fill(GROUPS, (), {"multiples": "\n".join(lines), "source": cited(row)})


def _power(config: Config, power: Power) -> str:
    """Text of width over base width and depth over base depth, each to its power."""
    width = {0.0: "", -1.0: f"{BASE_WIDTH} / D_MODEL"}.get(power.width, f"(D_MODEL / {BASE_WIDTH}) ** {power.width}")
    depth = {0.0: "", -1.0: f"{config.base_depth} / N_LAYERS"}.get(
        power.depth, f"(N_LAYERS / {config.base_depth}) ** {power.depth}")
    return product(width, depth) or "1"


RETURNED = re.compile(r"^( +)(x|streams) = ([^#\n]*)\n\1return \2\n", re.MULTILINE)
"""A last value that is named only to be returned."""


def torch_module(config: Config) -> str:
    """A design as the text of one Python file that needs only torch, to be read as nanoGPT's model.py is.

    Norms, factors and sizes are written out for this design; nothing that it does not use is there. The file has a
    class `Transformer()` whose `forward` takes what the config's input is: embedded tokens `[batch, token, d_model]`
    of the config's second moment, or ids `[batch, token]` where it is text. It returns the last stream
    `[batch, token, d_model]`, or logits `[batch, token, vocabulary]` where the loss is that of the next character.
    Weights are drawn by the config's rules; parameters are named as those of `explorer.model.Transformer`, so that
    either loads the other's `state_dict()` and then gives the same output.

    Raises:
        TypeError: the config is none.
        ConfigError: the design has norms within its branches in some layers only, or a factor on each row of logits
            other than 1 and s ln n; no design of today's tables does.
    """
    must_be(Config, "config", config)
    for places in (placements(config)[::2], placements(config)[1::2]):
        if len({(place.on_heads, place.on_read) for place in places}) > 1:
            raise config.refusal("{norm_placement} must have the same norms within the branches of all layers, to be "
                                 "written as torch; got {norm_placement=}")
    body = _body(config)
    imports = ["import math\n"] * ("math." in body) + ["import torch"]
    imports += ["import torch.nn.functional as F"] * bool(re.search(r"\bF\.", body)) + ["from torch import nn"]
    return f"{docstring(config)}\n\n" + "\n".join(imports) + f"\n\n{body}"


def _body(config: Config) -> str:
    """The module after its imports: the constants and functions that are used, and the classes."""
    classes = {run.name: layer_class(config, run) for run in runs(config)}
    parts = [attention(config) if attends(config) else "", mlp(config), mixing(config), *classes.values(),
             stack(config), rates(config)]
    body = "\n\n\n".join(filter(None, parts))
    functions = {**helpers(config), "norm": norm(config), "activation": activation(config), "rotate": rotate(config)}
    body = RETURNED.sub(r"\1return \3\n", "\n\n\n".join((*used(functions, body), body)) + "\n")
    return "\n".join(used(constants(config), body)) + f"\n\n\n{body}"



torch_code = torch_module
"""Its public name."""
