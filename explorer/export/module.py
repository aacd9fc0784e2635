"""`torch_module`: a design as a file of torch, by itself."""

from __future__ import annotations

import re

from explorer.config import Config
from explorer.display import must_be
from explorer.export.attention import attention
from explorer.export.heading import constants, docstring
from explorer.export.layers import layer_class
from explorer.export.mixing import mixing
from explorer.export.mlp import activation, mlp
from explorer.export.norms import norm
from explorer.export.positions import rotate
from explorer.export.rates import rates
from explorer.export.runs import runs
from explorer.export.stack import stack
from explorer.export.template import used
from explorer.export.weights import helpers
from explorer.schemes.attention import attends
from explorer.schemes.placement import placements

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
    """What follows the imports: constants and functions, those that are used, and classes."""
    classes = {run.name: layer_class(config, run) for run in runs(config)}
    parts = [attention(config) if attends(config) else "", mlp(config), mixing(config), *classes.values(),
             stack(config), rates(config)]
    body = "\n\n\n".join(filter(None, parts))
    functions = {**helpers(config), "norm": norm(config), "activation": activation(config), "rotate": rotate(config)}
    body = RETURNED.sub(r"\1return \3\n", "\n\n\n".join((*used(functions, body), body)) + "\n")
    return "\n".join(used(constants(config), body)) + f"\n\n\n{body}"



torch_code = torch_module
"""Its public name."""
