"""Whether a model that predicts the next token sees it: what its loss asks for, and on what its
output depends.

Both are read from the pass that a probe makes anyway. The gradient of a cross-entropy by the logits
says which token each row is asked for; the gradient of one row of logits by the embedded tokens
says on which of them the row depends. That gradient takes one pass backward without the
parameters', about as long as a pass forward. Nothing runs a second time, so numbers drawn at
random, statistics of the batch and caches are those of the pass itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer_models.logits import LEAST_ROWS, Asked
from explorer_models.nodes import PLACES

TABLES = {
    "embedding": ("weight", "indices"),
    "index": ("self", "indices"),
    "index_select": ("self", "index"),
}
"""Operations that take rows of a table, and their arguments: the table, and which rows."""
LEAK = 1e-4
"""Share of a row's gradient that later tokens have where the row depends on them: an average
over 30,000 tokens with GPT-2's initialization leaves 1e-3; a mask leaves exactly 0, and a
convolution by Fourier transforms a rounding of 1e-6."""
MOST = 0.9
"""Share of the rows for which a rule of the targets must hold."""
CHANCE = 5.0
"""Standard errors beyond chance from which on targets are the tokens at their own places more often
than by chance."""
CAUSAL = "ForCausalLM"
"""Ending of the names of classes in transformers that predict the next token."""


class Lookup(NamedTuple):
    """Rows of a table that a model took, such as its tokens' embeddings."""

    rows: int
    """Of the table."""
    places: Tensor
    """Which rows, `[…]`."""
    out: Tensor
    """The rows, `[…, d]`."""


def lookup(
    op: str, named: Mapping[str, object], out: Tensor, parameters: Mapping[int, nn.Parameter]
) -> Lookup | None:
    """Rows that an operation took from a table of parameters; None of any other operation.

    Args:
        op: its name.
        named: its arguments.
        out: its result.
        parameters: of the model, by the id of their tensors.
    """
    table, places = (named.get(name) for name in TABLES[op])
    if isinstance(places, (list, tuple)):  # of `table[places]`
        places = places[0] if len(places) == 1 else None
    if not isinstance(table, Tensor) or id(table) not in parameters or table.ndim != 2:
        return None
    if (
        not isinstance(places, Tensor)
        or places.dtype not in PLACES[1:]
        or out.shape != (*places.shape, table.shape[1])
    ):
        return None
    return Lookup(len(table), places, out)


def sees_target(
    model: nn.Module, lookups: Sequence[Lookup], asked: Asked, facts: Mapping[str, float | str]
) -> dict[str, float | str]:
    """Facts of `Profile.facts` on a model that predicts tokens: the kind of its target, and how
    much of a row's gradient later tokens have. Empty where nothing shows that it predicts tokens.

    Args:
        model: whose class and config may say that it predicts the next token.
        lookups: of the pass.
        asked: the logits, and what the loss asks for.
        facts: that all layers share.
    """
    logits, targets = asked.logits, asked.targets
    if logits is None:
        return {}
    rows = math.prod(logits.shape[:-1])
    texts = [
        table
        for table in lookups
        if table.places.numel() == rows > 1 and table.out.requires_grad and _text(table)
    ]
    if not texts:
        return {}
    tokens = texts[-1]  # of a decoder, which comes after its encoder
    alone = all(torch.equal(table.places.flatten(), tokens.places.flatten()) for table in texts)
    kind, axis, shift = _kind(model, tokens, targets, logits.shape[-1], alone)
    if not kind or (kind == "own" and facts.get("mask") != "causal"):
        return {}
    places = _by_sequence(tokens.places, axis)
    goals = None if targets is None else _by_sequence(targets.reshape(tokens.places.shape), axis)
    row = _row(places.shape[-1], shift, None if goals is None else goals[0])
    if row is None:
        return {}
    sizes = _gradient(logits, tokens, axis, row)
    total = float(sizes.sum())
    if not (math.isfinite(total) and total > 0):
        return {}
    first_later = row if kind == "own" else row + 1
    later = math.sqrt(float(sizes[first_later:].sum()) / total)
    return {"target": kind, "ahead": later if later > LEAK else 0.0}


def _text(table: Lookup) -> bool:
    """Whether the rows that were taken may be those of tokens. Rows of positions are neighbors, or
    all alike."""
    places = table.places if table.places.ndim > 1 else table.places[None]
    steps = places.flatten(0, -2).diff(dim=-1)
    return not bool((steps == 1).all()) and not bool((steps == 0).all())


def _kind(
    model: nn.Module, tokens: Lookup, targets: Tensor | None, classes: int, alone: bool
) -> tuple[str, int, int]:
    """The evidence that a model predicts tokens, and its target.

    Args:
        tokens: that go into the model.
        targets: the class that each row is asked for; None without a cross-entropy.
        classes: number of them.
        alone: whether these tokens are the model's only ones.
    Returns:
        the kind of evidence, empty without any: next, own, second (the targets are the next
            tokens, the
        same ones, those after the next), class (its name or its config says so), token (at each
            position
        a token of the same vocabulary, neither the position's own nor one of a rearrangement);
            the axis
        of the tokens; and how many tokens ahead the target is.
    """
    config = getattr(model, "config", None)
    named = type(model).__name__.endswith(CAUSAL) or getattr(config, "is_decoder", False) is True
    if targets is None:
        return ("class", -1, 1) if named and alone else ("", -1, 1)
    goals_of_all = targets.reshape(tokens.places.shape)
    for axis in (-1, 0)[: tokens.places.ndim]:
        places, goals = _by_sequence(tokens.places, axis), _by_sequence(goals_of_all, axis)
        shares = [_share(places, goals, shift) for shift in range(3)]
        shifts = [shift for shift, share in enumerate(shares) if share >= MOST]
        if len(shifts) == 1 and (alone or shifts == [1]):
            return ("own", "next", "second")[shifts[0]], axis, shifts[0]
    places = tokens.places
    asked = goals_of_all >= 0
    same = float((places == goals_of_all)[asked].float().mean()) if bool(asked.any()) else 1.0
    chance = 1 / max(1, classes)
    by_chance = same <= chance + CHANCE * math.sqrt(chance / max(1, int(asked.sum())))
    if not (alone and by_chance and float(asked.float().mean()) >= MOST):
        return "", -1, 1
    moved = bool((places.sort(dim=-1).values == goals_of_all.sort(dim=-1).values).all())
    if classes != tokens.rows or moved:
        return "", -1, 1
    return ("class" if named else "token"), -1, 1


def _share(places: Tensor, goals: Tensor, shift: int) -> float:
    """Share of the targets `[sequence, token]` that are the tokens `shift` positions later; nan
    of too few."""
    n = places.shape[-1]
    if n <= shift:
        return math.nan
    goal = goals[:, : n - shift]
    asked = goal >= 0
    if int(asked.sum()) < LEAST_ROWS:
        return math.nan
    return float((goal == places[:, shift:])[asked].float().mean())


def _by_sequence(places: Tensor, axis: int) -> Tensor:
    """`[sequence, token]` of a tensor that has its tokens along an axis."""
    moved = places.movedim(axis, -1)
    return moved.reshape(-1, moved.shape[-1])


def _row(n: int, shift: int, goals: Tensor | None) -> int | None:
    """The row of the first sequence whose dependence on later tokens is tested: the middle one
    of those that have a target among the tokens; None without one.

    Args:
        n: number of tokens.
        shift: by which the target is ahead.
        goals: targets of the sequence, −1 of a row that is not asked.
    """
    rows = list(range(n - max(1, shift)))
    if goals is not None:
        rows = [row for row, asked in zip(rows, (goals >= 0).tolist(), strict=False) if asked]
    return rows[len(rows) // 2] if rows else None


def _gradient(logits: Tensor, tokens: Lookup, axis: int, row: int) -> Tensor:
    """Squared norm, by token of the first sequence, of the gradient of one row of its logits in
    a random direction: 0 of tokens on which the row does not depend."""
    index = _by_sequence(torch.arange(tokens.places.numel()).reshape(tokens.places.shape), axis)
    row_logits = logits.flatten(0, -2)[int(index[0, row])]
    row_logits = row_logits if row_logits.dtype == torch.float64 else row_logits.float()
    numbers = torch.Generator().manual_seed(0)
    value = (row_logits * torch.randn(row_logits.shape, generator=numbers).to(row_logits)).sum()
    (gradient,) = torch.autograd.grad(value, tokens.out, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.zeros(index.shape[-1])
    sizes = gradient.detach().double().square().sum(dim=-1).flatten().cpu()
    return sizes[index[0]]
