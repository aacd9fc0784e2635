"""Makes `tables.npz` from the exact integrals: `python -m explorer.theory.tabulate`, six minutes on an idle core.

What is stored is smooth in the nodes' variables (see `grids`): cubic splines read it to some tenths of a per cent.
"""

from __future__ import annotations

import math

import numpy as np

from explorer.theory import softmax
from explorer.theory.grids import PATH, ROOT, SIZES, TABULATED, Array, V, X, rho_of, s_of
from explorer.theory.kernels import integrals


def rows() -> Array:
    """`[size, root, 8]`: entropy / ln n; largest and Σp² from 1/n (0) to 1; ln J, spread, tilted; the rest as it is."""
    out = np.empty((len(SIZES), len(ROOT), 8))
    for i, n in enumerate(SIZES):
        for j, s in enumerate(s_of(ROOT**2)):
            row = softmax.row(float(s), n)
            out[i, j, :3] = row.entropy / math.log(n), *((y - 1 / n) / (1 - 1 / n) for y in (row.largest, row.square))
            out[i, j, 3:6] = np.log([row.jacobian, row.spread, row.tilted])
            out[i, j, 6:] = row.crowding, row.unevenness
    return out


def pairs() -> Array:
    """`[size, x, v, 2]`: how far ln Y11 is from ln 1/n (0) to ln Y2 (1), and J11 / J."""
    out = np.empty((len(SIZES), len(X), len(V), 2))
    for j, s in enumerate(s_of(X)):
        single = [softmax.row(float(s), n) for n in SIZES]
        for k, rho in enumerate(np.clip(rho_of(V, np.full(len(V), s)), 0.0, 1.0)):
            if s == 0 or k == 0:
                out[:, j, k] = rho if s == 0 else 1.0, 1.0
                continue
            both = softmax.pairs_of_rows(float(s), float(rho), SIZES)
            for i, (row, pair, n) in enumerate(zip(single, both, SIZES, strict=True)):
                share = math.log(n * pair.overlap) / math.log(n * row.square)
                out[i, j, k] = max(share, 0.0), pair.jacobian / row.jacobian
    return out


def main() -> None:
    """Writes the file beside this module."""
    single, double = (np.stack(tables) for tables in zip(*map(integrals, TABULATED), strict=True))
    np.savez_compressed(
        PATH, rows=rows().astype(np.float32), pairs=pairs().astype(np.float32),
        activations=single.astype(np.float32), overlaps=double.astype(np.float32),
    )


if __name__ == "__main__":
    main()
