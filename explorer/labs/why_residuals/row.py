"""The lab Why residuals: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.why_residuals import experiment, pictures

ROW = Lab(
    "08_why_residuals", "Why residuals",
    "With a residual the branch can be small, and 1/√N is small enough: signal, gradient and the effect of one step "
    "on the loss then stay bounded at any depth.",
    "That a residual adds 1 to the derivative is not the point: x + F(x) without a norm grows as 2^N, both ways. 1/N "
    "is smaller than needed. In one dimension the growth is (1 + ε)^N; in many, the branch is nearly orthogonal to "
    "the stream, and ε² adds up. All this holds at initialization: trained branches may align.",
    experiment.WhyResiduals, experiment.run, experiment.verdict,
    (
        Plot(pictures.growths, "Signal and gradients", "With the chosen ε, against depth. Flat: bounded at any depth.",
             why=Why("Branches are nearly orthogonal to the stream: growth is (1 + ε²)^N, and not (1 + ε)^N.")),
        Plot(pictures.gradients, "Gradient of all weights",
             "Σ‖∂L/∂W‖² over one plain layer's. Bars: seeds, far apart without a residual."),
        Plot(pictures.rates, "Longer steps",
             "Change of the loss over its first order. 1: equal. At the edge: off the scale.",
             why=Why("ΔL ≈ −η‖∇L‖² to first order, and ‖∇L‖² grows with depth unless ε shrinks.")),
        Plot(pictures.small_enough, "Growth against the exponent",
             "All growths in N layers, against a. For a ≥ ½: bounded.",
             why=Why("(1 + ε²)^N with ε = N^−a stays below e for a ≥ ½.")),
    ),
    "Essay: Su Jianlin 2022, kexue 8994, after Wang et al. 2022, arXiv 2203.00555",
)
