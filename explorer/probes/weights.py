"""What a model's weights are, before anything passes them: their sizes, and how alike those of two layers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from explorer.probes.branches import Piece
from explorer.profile import Array, Key

SAMPLED = 4096
"""Entries of a matrix by which it is compared with the others."""


def weight_values(matrices: Mapping[str, Sequence[Sequence[Piece]]]) -> Iterator[tuple[Key, Array]]:
    """Mean squares of the weights times their fan_in, and how alike those of different layers are, `[1, layer]`.

    Args:
        matrices: name of the vocabulary to the pieces of each layer.
    """
    for name, layers in matrices.items():
        yield ("weight_variance", name), np.array([[_variance(pieces) for pieces in layers]])
        read = [bool(pieces) for pieces in layers]
        if sum(read) > 1:
            likeness = np.full((1, len(layers)), np.nan)
            likeness[0, read] = _likeness([pieces[0] for pieces in layers if pieces])
            yield ("weight_likeness", name), likeness


def _variance(pieces: Sequence[Piece]) -> float:
    """fan_in times the mean square, over all pieces."""
    parts = [piece.of(piece.parameter.detach()).float() for piece in pieces]
    return sum(float(part.square().mean()) * part.shape[-1] for part in parts) / len(parts) if parts else np.nan


def _likeness(pieces: Sequence[Piece]) -> Array:
    """Largest cosine of each with another, `[layer]`; that of a matrix that all layers share is 1."""
    flat = [piece.of(piece.parameter.detach()).flatten() for piece in pieces]
    size = min(len(one) for one in flat)
    chosen = torch.linspace(0, size - 1, min(size, SAMPLED), dtype=torch.float64, device=flat[0].device).long()
    sample = torch.stack([one[chosen].double() for one in flat])
    unit = sample / torch.linalg.vector_norm(sample, dim=1, keepdim=True)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
    found: Array = cosines.amax(dim=1).cpu().numpy()
    return found
