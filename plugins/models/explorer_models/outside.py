"""Tests from outside that a language model passes whatever its code is: it is called, and its
outputs are compared."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from explorer.foreign import STUCK
from explorer.profile import Profile
from explorer.translation import speaking
from explorer_models.ahead import CAUSAL
from explorer_models.model import Batch
from explorer_models.nodes import first_floating
from explorer_models.probe import probed
from explorer_models.starts import Departure, Start, departures
from explorer_models.texts import text

CLOSE = 1e-3
"""Largest difference of outputs, as a share of the largest output, that rounding makes."""
MOVED, PADDED = 5, 3
"""By how many places positions are moved, and how many tokens of padding are added."""
EXCESS = 1.0
"""Nats above ln V at which a loss may start."""
WITHOUT = ("unused", "uncalled")
"""States of parameters that the pass does not use: no training is lost with them."""


@speaking("en")  # its clauses have no translation
@torch.no_grad()
def failures(
    model: nn.Module,
    batch: Batch,
    start: Start,
    profile: Profile,
    optimizer: torch.optim.Optimizer | None = None,
) -> list[Departure]:
    """The tests that a model fails; tests that do not concern it are left out.

    Args:
        model, batch: as for `probe`. Tests on tokens need a batch of token ids `[batch, token]`, as
            a tensor or as `input_ids`.
        start, profile: of the model.
        optimizer: which is to hold all parameters that train; None for none.
    """
    rows = [*_of_parameters(model, profile, optimizer), *_of_numbers(profile)]
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    if isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point():
        with _evaluated(model):
            rows += _of_tokens(model, ids, start)
    rows += _drawn_later(model, batch, start)
    return rows


def _failed(key: str, where: str = "", /, **values: Any) -> Departure:
    """A test that failed, as a departure."""
    words = text("outside", key, **values)
    numbers = [value for value in values.values() if isinstance(value, float)]
    return Departure(words, site=where, value=next(iter(numbers), None), key=("outside", key))


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """A context in which nothing is dropped, and after which the random state is what it was."""
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.random.fork_rng(devices=[]):
            model.eval()
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _of_parameters(
    model: nn.Module, profile: Profile, optimizer: torch.optim.Optimizer | None
) -> Iterator[Departure]:
    """Matrices of layers without a gradient, parameters that no optimizer holds, and ties that the
    config says and the model has not."""
    for part in profile.learning.of(*STUCK):
        if part.layers and part.matrix and part.state not in WITHOUT:
            yield _failed("gradient", part.name, name=part.name, state=part.state)
    if optimizer is not None:
        held_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and id(parameter) not in held_ids:
                yield _failed("unheld", name, name=name)
    readers = [getattr(model, f"get_{end}_embeddings", None) for end in ("input", "output")]
    if all(readers) and getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        first, last = (reader() for reader in readers if reader is not None)
        if last is not None and getattr(last, "weight", None) is not getattr(first, "weight", None):
            yield _failed("untied", "readout")


def _of_numbers(profile: Profile) -> Iterator[Departure]:
    """Numbers of the stream beyond the range of float16."""
    largest = torch.finfo(torch.float16).max
    for name, site in profile:
        if name != "max_abs":
            continue
        value = float(profile[name, site].max())
        if value > largest:
            yield _failed("range", site, site=site, value=value)


def _of_tokens(model: nn.Module, ids: Tensor, start: Start) -> Iterator[Departure]:
    """Dependence on later tokens, on positions where rotary ones are to show distances alone, and
    on padding; and a loss that starts too high."""
    takes = inspect.signature(model.forward).parameters
    count, config = ids.shape[1], getattr(model, "config", None)

    def logits(tokens: Tensor, **more: Tensor) -> Tensor | None:
        """The output `[batch, token, V]`; None where it has another shape."""
        output = model(tokens, **more)
        out = first_floating(getattr(output, "logits", output))
        return out.float() if out is not None and out.shape[:2] == tokens.shape else None

    usual = logits(ids)
    if usual is None:
        return

    def gap(other: Tensor | None) -> float:
        """Largest difference, as a share of the largest output; 0 beside nothing."""
        if other is None:
            return 0.0
        return float((other - usual[:, : other.shape[1]]).abs().max() / usual.abs().max())

    scores = start.tables.get("attn_scores", {})
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % (int(ids.max()) + 1)
    if scores.get("mask") == "causal" or type(model).__name__.endswith(CAUSAL):
        changed = logits(other)
        if changed is not None and (size := gap(changed[:, :-1])) > CLOSE:
            yield _failed("later", value=size)
    rotates = scores.get("position") == "rotary"
    room = getattr(config, "max_position_embeddings", None) or math.inf
    if rotates and "position_ids" in takes and count + MOVED <= room:
        places = torch.arange(MOVED, MOVED + count, device=ids.device).expand_as(ids)
        if (size := gap(logits(ids, position_ids=places))) > CLOSE:
            yield _failed("distance", value=size)
    if "attention_mask" in takes and count + PADDED <= room:
        padding = ids.new_zeros(len(ids), PADDED)
        visible = torch.ones_like(ids)
        sides = (
            ([padding, ids], [padding, visible])
            if rotates
            else ([ids, padding], [visible, padding])
        )
        tokens, mask = (torch.cat(pair, dim=1) for pair in sides)
        padded = logits(tokens, attention_mask=mask)
        if padded is not None:
            own = padded[:, PADDED:] if rotates else padded[:, :count]
            if (size := gap(own)) > CLOSE:
                yield _failed("padding", value=size)
    if usual.shape[-1] == getattr(config, "vocab_size", None):
        even = math.log(usual.shape[-1])
        excess = float((usual.logsumexp(-1) - usual.mean(-1)).mean()) - even
        if excess > EXCESS:
            yield _failed("loss", value=excess, even=even)


def _drawn_later(model: nn.Module, batch: Batch, start: Start) -> Iterator[Departure]:
    """Departures of the model's class where it is made on the meta device, given memory, and drawn
    then, as large models are."""
    if not (hasattr(model, "init_weights") and hasattr(model, "config")):
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with torch.device("meta"):
            fresh: Any = type(model)(copy.deepcopy(model.config))
        fresh.to_empty(device="cpu")
        fresh.init_weights()
        fresh.train(model.training)
        fresh.to(next(model.parameters()).dtype)
        with torch.enable_grad():
            profile, stack = probed(fresh, batch)
    for row in departures(start, Start.of(fresh, profile, stack), profile):
        yield row._replace(words=text("outside", "meta", words=row.words), key=("outside", "meta"))
