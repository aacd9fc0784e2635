"""The lab Activations: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.activations import experiment, pictures
from explorer.labs.lab import Lab, Plot, Why

ROW = Lab(
    "03_activations", "Activations",
    "An activation changes the second moment by a known factor: divide by it, in the init variance or in the "
    "activation itself, and the signal keeps its size at any depth, in expectation.",
    "A draw of finite width scatters around that, more when it is deeper or narrower. The fixed point q = 1 need not "
    "be stable: for gelu and silu a small deviation grows from layer to layer. The gradient is not kept either: it is "
    "multiplied by χ = n · Var W · E φ′², which is 1 for relu, above 1 for most others, and far below 1 for a sigmoid "
    "unless its mean is removed.",
    experiment.Activations, experiment.run, experiment.verdict,
    (
        Plot(pictures.moments, "Moments", "Under N(0, 1). Bars: by quadrature. Dots: by sampling.",
             why=Why("E φ² is the factor on q: divided by its root, φ keeps q = 1.")),
        Plot(pictures.by_layer, "Signal and gradient by layer",
             "Mean x², and mean (∂L/∂x)² over the output's: two draws each. Lines: recursion.",
             why=Why("q_l = V(q_(l−1)), where V(q) = n · Var W · E φ(√q z)²; the gradient is multiplied by χ.")),
        Plot(pictures.length_map, "Map of the second moment",
             "The next layer's q against this one's. Dotted: equal. Stable where V crosses from above.",
             why=Why("A fixed point is stable where the slope of ln V over ln q lies within ±1.")),
        Plot(pictures.selu, "Solving for SELU",
             "λ and α must keep mean 0 and a variance: two conditions, one crossing.",
             why=Why("Where E φ = 0 and E φ² = 1 under N(0, 1), both stay so in the next layer.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; He et al. 2015, arXiv 1502.01852; Klambauer et al. 2017, arXiv 1706.02515",
)
