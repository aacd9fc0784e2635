"""The lab Residual: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.residual import experiment, pictures

ROW = Lab(
    "07_residual", "Residual",
    "In x + F(x) the second moments of independent parts add up. Post-norm therefore keeps 2^(−l/2) of its input "
    "after l branches, with pre-norm the stream grows by one unit a branch, and branches that start at zero make the "
    "whole stack the identity.",
    "2^(−l/2) is the weight of the identity path, not of the gradient: Post-LN without attention has a flat gradient, "
    "and attention bends it into a V. Pre-LN grows by one unit only where branches have unit moment. Starting as the "
    "identity has a price: matrices before a zero matrix, or in a branch whose α is zero, get no gradient in the "
    "first step.",
    experiment.Residual, experiment.run, experiment.verdict,
    (
        Plot(pictures.path, "Identity path", "Coefficient of the input. Dotted: standard error. Bars: seeds.",
             why=Why("Each norm divides a sum of two unit terms by √2: 2^(−l/2) after l branches.")),
        Plot(pictures.gradient, "Gradient of Post-LN", "Mean squared ∂L/∂x. Dashed: the identity path's weight².",
             why=Why("Attention shrinks gradients that differ between tokens, and passes what they share.")),
        Plot(pictures.growth, "Growth of the stream", "Second moment by layer, two branches each. Lines: theory.",
             why=Why("Independent branches add up: q_l = q_(l−1) + E F².")),
        Plot(pictures.first_gradients, "First gradient of each matrix",
             "Norms before the first step. 0: exactly zero.",
             why=Why("A branch of output α · F passes no gradient to its matrices while α = 0; α itself gets one.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Bachlechner et al. 2020, arXiv 2003.04887; Zhang 2019, arXiv 1901.09321",
)
