"""Largest singular values of matrices, and stable ranks, without a decomposition of any.

Power iteration by WᵀW that keeps its iterates: the unit vector v of their span with the longest W v
gives the largest singular value, from below (Golub & Kahan 1965). The last iterate alone, as power
iteration usually has it, needs many more steps for a random matrix, whose next singular values are
nearly as large."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from explorer.config import Config
from explorer.measuring.statistics import norms
from explorer.model.transformer import draw_weights
from explorer.stopping import Stop, check
from explorer.vocabulary import Array, Key

STEPS = 32
"""Steps from random starts: largest singular values of random matrices up to 768 × 3072 are then
right to 1e-3."""

SMALL = 128
"""Rows or columns up to which all singular values take less time than the steps."""
FEW_STEPS = 8
"""Steps for what an optimizer's step changed: within 2 %, of Adam's, SGD's and Muon's updates and
of random matrices up to 768 × 3072. Its singular vectors turn too far from one reading to the next
for a start from earlier ones."""
NEW = 1e-5
"""A unit vector whose part outside of a span is longer is a new direction; a shorter part is a
rounding error."""


@torch.no_grad()
def spectra(matrices: Sequence[Tensor], steps: int = STEPS) -> tuple[Array, Array]:
    """Largest singular values and stable ranks, from random starts that are always the same.

    Args:
        matrices: `[row, column]` each, of any shapes.
        steps: of the power iteration.
    Returns:
        ‖W‖₂ `[matrix]`, nan where an entry is not finite; ‖W‖_F² / ‖W‖₂² `[matrix]`, nan of zeros.
    """
    if not matrices:
        return np.zeros(0), np.zeros(0)
    # the longest image of a unit vector of the iterates' span: an eigenvalue of [step, step]
    images = [_images(weight.float(), steps) for weight in matrices]
    squares = torch.stack([image @ image.T for image in images]).cpu()
    finite = squares.isfinite().all(-1).all(-1)  # [matrix]
    values = torch.linalg.eigvalsh(squares.where(finite[:, None, None], 0))  # rising
    largest = values[:, -1].clamp(min=0).sqrt().where(finite, np.nan).numpy()
    sizes = np.array(norms([weight.float() for weight in matrices]))
    with np.errstate(all="ignore"):
        ranks = np.square(sizes / largest)
    return largest, ranks


def _images(weight: Tensor, steps: int) -> Tensor:
    """Products of a matrix `[row, column]` with orthonormal iterates of WᵀW, `[step, row]`,
    float64; zeros once there are no more directions."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(weight.shape[1], generator=generator).to(weight.device)
    vector = _unit(start)
    basis = weight.new_zeros(steps, weight.shape[1])
    images = weight.new_zeros(steps, len(weight))
    for step in range(min(steps, weight.shape[1], len(weight) + 1)):  # there are no more directions
        if step:
            rest = vector - (basis[:step] @ vector) @ basis[:step]
            size = torch.linalg.vector_norm(rest)
            rest = rest / size.where(size > NEW, torch.inf)  # zeros if it is no new direction
            # the division has enlarged rounding errors: they are taken out once more
            vector = _unit(rest - (basis[:step] @ rest) @ basis[:step])
        basis[step], images[step] = vector, weight.mv(vector)
        vector = _unit(weight.mT.mv(_unit(images[step])))
    return images.double()


def _unit(x: Tensor) -> Tensor:
    """The vector of length 1 along another; zeros of zeros."""
    # squares of the entries could leave float32's range: the largest becomes 1
    x = x / x.abs().amax().clamp(min=torch.finfo(x.dtype).tiny)
    unit: Tensor = x / torch.linalg.vector_norm(x).clamp(min=1)
    return unit


def of_config(config: Config, seed: int, stop: Stop) -> dict[Key, Array]:
    """Statistics of the matrices of a seed's model as they multiply, `[layer]` each; the weights
    are drawn anew."""
    values = {}
    weights = draw_weights(config, seed, partial(check, stop))
    for name, matrix in config.design.matrices.items():
        check(stop)
        largest, ranks = of_stack(weights[name])
        shape_factor = (matrix.fan_in / matrix.fan_out) ** 0.5  # the statistic's unit
        values["spectral_norm", name] = largest * matrix.forward * shape_factor
        if matrix.variance:  # zeros have no rank
            values["stable_rank", name] = ranks
    return values | of_logits(config, weights)


def of_logits(config: Config, weights: Mapping[str, Tensor]) -> dict[Key, Array]:
    """Statistics of W_Qᵀ W_K, `[layer, head]` each; none where a norm gives queries and keys their
    length.

    Args:
        weights: W_Q and W_K, `[layer, row, column]`.
    """
    if not config.design.attends or config.design.normalizes_heads:
        return {}

    def by_head(name: str) -> Tensor:
        """A matrix as it multiplies, `[layer, head, d_head, d]`; heads may share keys."""
        matrix = weights[name].reshape(config.n_layers, -1, config.d_head, config.d_model)
        matrix = matrix * config.design.matrices[name].forward
        return matrix.repeat_interleave(config.n_heads // matrix.shape[1], dim=1)

    return of_heads(by_head("W_Q"), by_head("W_K"), config.design.divisor)


def of_heads(queries: Tensor, keys: Tensor, divisor: float) -> dict[Key, Array]:
    """Largest logit of two vectors of RMS 1, and stable rank of W_Qᵀ W_K, which zeros do not have;
    `[layer, head]`.

    W_Qᵀ W_K = U_Q R_Q R_Kᵀ U_Kᵀ by the QR decompositions of both transposes, so R_Q R_Kᵀ has its
    singular values.

    Args:
        queries, keys: W_Q and W_K, `[layer, head, d_head, d]`.
        divisor: of the logits.
    """
    r_queries, r_keys = (
        torch.linalg.qr(matrix.float().mT, mode="r").R for matrix in (queries, keys)
    )
    products = (r_queries @ r_keys.mT).flatten(0, 1)  # [layer · head, d_head, d_head]
    largest, ranks = (numbers.reshape(queries.shape[:2]) for numbers in of_stack(products))
    # two vectors of RMS 1 have lengths √d
    values = {("largest_possible_logit", "attn_scores"): largest * queries.shape[-1] / divisor}
    if (largest != 0).all():
        values["logit_rank", "attn_scores"] = ranks
    return values


def of_stack(stack: Tensor, steps: int = STEPS) -> tuple[Array, Array]:
    """Largest singular values and stable ranks `[matrix]` of `[matrix, row, column]`; nan where one
    is not finite.

    Small matrices by all eigenvalues of W Wᵀ, exactly; others by so many steps, from below.
    """
    if min(stack.shape[1:]) > SMALL:
        return spectra(list(stack), steps)
    finite, stack = stack.isfinite().all(-1).all(-1).cpu(), stack.cpu().double()  # [matrix]
    if stack.shape[1] > stack.shape[2]:
        stack = stack.mT  # the smaller of W Wᵀ and WᵀW
    stack = stack.where(finite[:, None, None], 0)
    squares = torch.linalg.eigvalsh(stack @ stack.mT).clamp(min=0)  # of singular values, rising
    squares = squares.where(finite[:, None], math.nan).numpy()
    with np.errstate(invalid="ignore"):
        return np.sqrt(squares[:, -1]), squares.sum(1) / squares[:, -1]
