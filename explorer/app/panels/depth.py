"""The Depth panel: its labs, a row each."""

from __future__ import annotations

from explorer.app.panels.lab import Lab, Plot
from explorer.figures.labs import residual as residual_figures
from explorer.figures.labs import why_residuals as why_residuals_figures
from explorer.labs import residual, why_residuals

ROWS: tuple[Lab, ...] = (
    Lab(
        "07_residual",
        "Residual",
        "In x + F(x) the second moments of independent parts add up. Post-norm therefore keeps 2^(−l/2) of its input "
        "behind l branches, pre-norm lets the stream grow by one unit a branch, and branches that start at zero make "
        "the whole stack the identity.",
        "2^(−l/2) is the weight of the identity path, not of the gradient: Post-LN without attention has a flat one, "
        "and it is attention that bends it into a V. Pre-LN grows by one unit only where branches have unit moment. "
        "And an identity has its price: what stands in front of a zero matrix, or in a branch whose α is zero, gets no "
        "gradient in the first step.",
        residual.Residual, residual.run, residual.verdict,
        (
            Plot("sums", "Moments of a sum", "What branches add. On the dotted level: as if independent.",
                 residual_figures.sums),
            Plot("path", "The identity path", "How much of the input is left in a post-norm stream. Bars: seeds.",
                 residual_figures.path),
            Plot("gradient", "Post-LN's gradient", "Mean squared ∂L/∂x. Dashed: if it went as the path. It does not.",
                 residual_figures.gradient),
            Plot("growth", "Growth of the stream", "Second moment by layer, two branches each. Lines: theory.",
                 residual_figures.growth),
            Plot("first_gradients", "Who gets a first gradient", "Norms before the first step. 0: exactly zero.",
                 residual_figures.first_gradients),
            Plot("identities", "Starting as the identity", "Mean squared ∂L/∂x, same designs. Exactly 1: identity.",
                 residual_figures.identities),
        ),
    ),
    Lab(
        "08_why_residuals",
        "Why residuals",
        "A residual lets the branch be made small, and 1/√N is small enough: signal, gradient and what one step does "
        "to the loss then stay bounded at any depth.",
        "That a residual adds 1 to the derivative is not the point: x + F(x) without a norm grows as 2^N, both ways. "
        "Small need not mean 1/N either. (1 + ε)^N is what one dimension does; in many the branch is nearly orthogonal "
        "to the stream, and it is ε² that adds up. All this holds at initialization: trained branches may align.",
        why_residuals.WhyResiduals, why_residuals.run, why_residuals.verdict,
        (
            Plot("growths", "Three growths at once", "With the chosen ε, against depth. Flat: deeper costs nothing.",
                 why_residuals_figures.growths),
            Plot("gradients", "Gradient of all weights",
                 "Σ‖∂L/∂W‖² over one plain layer's. Bars: seeds, far apart without a residual.",
                 why_residuals_figures.gradients),
            Plot("step", "One step of descent", "How far the loss falls, at the chosen η. Lines: η‖∇L‖², expected.",
                 why_residuals_figures.step),
            Plot("rates", "Longer steps",
                 "Change of the loss over its first order. 1: it keeps it. At the edge: beyond.",
                 why_residuals_figures.rates),
            Plot("product", "One dimension against many", "Aligned branches: (1+ε)ᴺ. Random ones: only (1+ε²)ᴺ.",
                 why_residuals_figures.product),
            Plot("small_enough", "How small is small enough", "All growths in N layers, against a. From ½ on: bounded.",
                 why_residuals_figures.small_enough),
        ),
    ),
)
