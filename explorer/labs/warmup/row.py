"""The lab Warm-up: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.warmup import experiment, pictures

ROW = Lab(
    "11_warmup", "Warm-up",
    "Post-LN needs a learning rate that rises slowly: without warm-up it stalls, with Adam as with SGD. Pre-LN trains "
    "without warm-up. Before the first step Post-LN's gradients are large; after the warm-up they are small.",
    "Warm-up treats the symptom. A stall is not one step that was too long, but its consequence: all tokens become "
    "alike, and then no gradient passes the layers. In these small models RAdam, whose first steps are small, needs "
    "no warm-up either (8 of 8 seeds), although the paper calls it no substitute. This lab trains six models.",
    experiment.Warmup, experiment.run, experiment.verdict,
    (
        Plot(pictures.losses, "Held-out loss", "Nats a character. A stalled model stays at the unigram's level.",
             why=Why("ΔL ≈ −η‖∇L‖² only while steps are short: warm-up begins with short ones.")),
        Plot(pictures.gradients, "Gradients before and after warm-up",
             "All matrices of a layer: as drawn, and at step T with and without.",
             why=Why("Untrained, the last gradient of Post-LN does not depend on depth; Pre-LN's falls as 1/√L.")),
        Plot(pictures.correlation, "Token correlation", "After the last layer. A stall is at 1: all tokens are alike.",
             why=Why("At ρ = 1 all keys are alike: attention has nothing to choose, and no logit gets a gradient.")),
    ),
    "Xiong et al. 2020, arXiv 2002.04745",
    grows=True,
)
