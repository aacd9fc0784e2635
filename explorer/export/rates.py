"""Text of the learning rates that a parametrization asks for."""

from __future__ import annotations

from explorer.config import Config
from explorer.export.spelling import cited, product
from explorer.export.template import fill
from explorer.schemes.parametrization import BASE_WIDTH, PARAMETRIZATIONS, SAME, Power

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
