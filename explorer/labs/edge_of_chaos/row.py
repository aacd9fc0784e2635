"""The lab Edge of chaos: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.edge_of_chaos import experiment, pictures
from explorer.labs.lab import Lab, Plot, Why

ROW = Lab(
    "16_edge_of_chaos", "Edge of chaos",
    "Without norms a deep stack vanishes on one side of a line in its variances and explodes on the other, and only "
    "near that line does a signal, or a gradient, come through. Attention has a line of its own: beyond a logit spread "
    "of √(2 ln n) a row freezes onto a few keys.",
    "The line is sharp only in a deep stack, and in a wide one: of relu's it is at σ² = 1 at any depth; of tanh, which "
    "saturates, it comes from above as the depth grows. Residuals take away the side that vanishes, not the one that "
    "explodes. And √(2 ln n) is a limit that is slow to come: at 256 tokens half of the entropy is gone a bit before "
    "it, where infinitely many would have lost half at 0.71 of it.",
    experiment.EdgeOfChaos, experiment.run, experiment.verdict,
    (
        Plot(pictures.moments, "Second moment, no norm, no residual",
             "Colors and dots: measured. Lines: theory. Left it vanishes, right it explodes.",
             why=Why("Each of a layer's two matrices multiplies q by σ², at unit gain.")),
        Plot(pictures.gradients, "Gradient, no norm, no residual", "First over last layer: the same line, for relu.",
             why=Why("γ_(l−1) = χ γ_l: below χ = 1 gradients vanish, above it they explode.")),
        Plot(pictures.branches, "Second moment with residuals",
             "Variances of attention and MLP. Nothing vanishes; much explodes.",
             why=Why("q_l = q_(l−1) + E F²: each branch adds, and none takes away.")),
        Plot(pictures.freezes, "Entropy of undivided attention",
             "1 is uniform. Dashed: s = √(2 ln n), where n logits freeze.",
             why=Why("s = σ² √d here. As n grows, H / ln n → 1 − s² / (2 ln n), until it freezes.")),
    ),
    "Poole et al. 2016, arXiv 1606.05340; Schoenholz et al. 2016, arXiv 1611.01232; Giorlandino & Goldt 2025, arXiv "
    "2505.24333",
)
