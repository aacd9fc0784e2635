"""Text of the MLP sublayer."""

from __future__ import annotations

import math
import re

from explorer.config import Config
from explorer.export.spelling import Symbol, bracketed, cited, doc, number
from explorer.export.template import fill
from explorer.export.weights import draws, times
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.mlp import MLPS, readers
from explorer.schemes.placement import placements

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
