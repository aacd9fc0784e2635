"""Text of the norm, or of the function in its place."""

from __future__ import annotations

from explorer.config import Config
from explorer.export.spelling import Symbol, cited, doc, number
from explorer.export.template import fill
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.placement import NORMS, centers, point

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
