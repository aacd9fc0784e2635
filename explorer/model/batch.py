"""The input of the model and the target of its output, drawn from a config and a seed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from explorer import text
from explorer.config import Config
from explorer.model import noise
from explorer.schemes.data import INPUTS


class Batch(NamedTuple):
    """Inputs and targets of one pass.

    `input` is `[batch, token, d_model]` of the config's second moment, or character codes `[batch,
    token]`; `target` is the linear loss's direction `[batch, token, d_model]`, or the codes of the
    next characters `[batch, token]`."""

    input: Tensor
    target: Tensor

    def to(self, device: torch.device) -> Batch:
        """A copy of the batch on a device."""
        return Batch(self.input.to(device), self.target.to(device))


def draw(config: Config, seed: int, seeds: int = 1) -> Batch:
    """The batch of one seed; only its shape depends on the sizes, so it stays when a design
    changes.

    Batches of several seeds, from this one on, follow each other along the first axis.
    """
    if seeds > 1:
        batches = [draw(config, number) for number in range(seed, seed + seeds)]
        inputs, targets = zip(*batches, strict=True)
        return Batch(torch.cat(inputs), torch.cat(targets))
    if not config.design.reads_text:
        return Batch(_vectors(config, seed), _direction(config, seed))
    if sentence := config.design.sentence:
        codes = torch.from_numpy(text.encode(sentence).codes.copy()).expand(config.batch_size, -1)
        return Batch(codes, _direction(config, seed))
    codes = _windows(config, seed)
    following = codes[:, 1:]
    target = following if config.design.predicts_text else _direction(config, seed)
    return Batch(codes[:, :-1], target)


def _vectors(config: Config, seed: int) -> Tensor:
    """Gaussian tokens `[batch, token, d_model]`; two of a sequence overlap in expectation as the
    input's row says: they have a part in common."""
    own = noise.stack(seed, "tokens", config.batch_size, (config.n_ctx, config.d_model))
    overlap, size = INPUTS[config.input].overlap(config), math.sqrt(config.input_second_moment)
    if not overlap:
        return own if size == 1 else size * own
    common = noise.stack(seed, "shared token", config.batch_size, (1, config.d_model))
    return size * math.sqrt(overlap) * common + size * math.sqrt(1 - overlap) * own


def _direction(config: Config, seed: int) -> Tensor:
    """A random direction `[batch, token, d_model]` of unit expected norm, so that the linear loss
    has unit variance at unit second moment."""
    shape = (config.n_ctx, config.d_model)
    direction = noise.stack(seed, "loss direction", config.batch_size, shape)
    return direction / math.sqrt(config.batch_size * config.n_ctx * config.d_model)


def _windows(config: Config, seed: int) -> Tensor:
    """Character codes `[batch, token + 1]` of windows at random places of the prose."""
    codes = text.prose().codes
    starts = np.random.default_rng([seed, 1]).integers(
        len(codes) - config.n_ctx, size=config.batch_size
    )
    return torch.from_numpy(codes[starts[:, None] + np.arange(config.n_ctx + 1)])
