"""`rotation`: the size of an optimizer's step at equilibrium, relative to the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.optimizer import Optimizer


def rotation(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """‖ΔW‖ / ‖W‖ of a step at equilibrium, for a group of an optimizer's parameters;
    `own.equilibrium` derives it.

    Returns:
        0 without weight decay, and for optimizers other than torch's SGD and Adam with decay apart
        from the gradient.
    """
    decay = float(group["lr"]) * float(group.get("weight_decay", 0))  # of ‖W‖ in a step
    swing = math.sqrt(max(0.0, 2 * decay))
    if isinstance(optimizer, torch.optim.SGD) and not group["nesterov"] and not group["dampening"]:
        return swing / math.sqrt(1 + group["momentum"])
    if isinstance(optimizer, torch.optim.Adam) and group.get("decoupled_weight_decay"):
        beta = float(group["betas"][0])
        return swing * math.sqrt((1 - beta) / (1 + beta))
    return 0.0
