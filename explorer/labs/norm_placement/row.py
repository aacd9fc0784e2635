"""The lab Norm placement: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.norm_placement import experiment, pictures

ROW = Lab(
    "09_norm_placement", "Norm placement",
    "In Post-LN the last MLP's initial gradient does not depend on depth. In Pre-LN the stream's second moment stays "
    "between 1 + l/2 and 1 + 3l/2, and the last gradient shrinks as 1/√L.",
    "All of this is at initialization. That Pre-LN therefore needs no warm-up is the paper's conclusion, which is "
    "tried in the lab Warm-up, not here. The theorem bounds from above, without constants, for one head with W_Q = "
    "W_K = 0: what can be tested is its slope, a little steeper than −½ while tokens still become more alike. And "
    "2^(−l/2), the weight of the identity path, is not how the gradient decays: Post-LN without attention has a flat "
    "gradient. Attention bends it into a V: averaging shrinks gradients that differ from token to token, and passes "
    "on what they share.",
    experiment.NormPlacement, experiment.run, experiment.verdict,
    (
        Plot(pictures.theorem, "Gradient of the last MLP",
             "Theorem 1's setting, stacks of growing depth. Dotted: 1/√L.",
             why=Why("Pre-LN's last norm divides the gradient by √q_L, and q_L grows as L.")),
        Plot(pictures.stream, "Pre-LN in its band", "Second moment. Gray: from 1 + l/2 to 1 + 3l/2.",
             why=Why("Attention adds ρ + (1 − ρ)/n to q, the MLP ½: from ½ to 3/2 a layer.")),
        Plot(pictures.bends, "Post-LN by attention", "Mean squared ∂L/∂x: no attention, a plain mean, softmax.",
             why=Why("Averaging shrinks gradients that differ from token to token; it passes on what they share.")),
        Plot(pictures.gradients, "Gradient of five designs", "Mean squared ∂L/∂x over the output's. Lines: theory.",
             why=Why("Pre-LN: γ_(l−1) = γ_l (1 + χ / q_(l−1)), and q grows on the way up.")),
    ),
    "Xiong et al. 2020, arXiv 2002.04745",
)
