"""The lab Residual streams: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.residual_streams import experiment, pictures

ROW = Lab(
    "14_residual_streams", "Residual streams",
    "Several streams that mix (mHC), attention over all earlier outputs (AttnRes) and a weighted stream between norms "
    "(Keel) train very deep models, in which Post-LN loses its gradient.",
    "Untrained, mHC and AttnRes are Pre-LN: streams that start alike stay alike, queries of zero average all outputs, "
    "and the norm before each branch divides the factor that is left. Their curves lie on each other. What training "
    "changes is shown after a few steps of small models, which says nothing of the papers' models and losses. A model "
    "that has learned how often characters come, and no more, predicts the same after every token: its tokens become "
    "alike, whatever the design. This lab trains five models of many layers.",
    experiment.ResidualStreams, experiment.run, experiment.verdict,
    (
        Plot(pictures.untrained_correlation, "Token correlation, untrained",
             "ρ by layer; at 1 all tokens are alike: rank 1.",
             why=Why("Streams that start alike stay alike: at first mHC and AttnRes are Pre-LN.")),
        Plot(pictures.untrained_gradient, "Gradient, untrained",
             "Mean squared ∂L/∂x over the output's. Lines: theory.",
             why=Why("The norm before each branch divides away what mixing multiplies by.")),
        Plot(pictures.trained_correlation, "Token correlation after training", "The same of small models, trained."),
        Plot(pictures.trained_gradient, "Gradient after training", "Mean squared ∂L/∂x over the output's."),
        Plot(pictures.losses, "Held-out loss", "Nats a character, over the steps."),
    ),
    "mHC: Xie et al. 2025, arXiv 2512.24880; AttnRes: Kimi Team 2026, arXiv 2603.15031; Keel: Chen & Wei 2026, arXiv "
    "2601.19895",
    grows=True,
)
