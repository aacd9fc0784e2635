"""The lab Gated MLP and rotary: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.gated_mlp_and_rotary import experiment, pictures
from explorer.labs.lab import Lab, Plot, Why

ROW = Lab(
    "13_gated_mlp_and_rotary", "Gated MLP and rotary",
    "A Llama block is GPT-2's with RMSNorm, SiLU, a gate, rotary positions and grouped heads. At initialization the "
    "gate is what the signal notices: it multiplies by a factor without a mean, passes on less of what tokens share, "
    "and so keeps them apart.",
    "All of this is at initialization, where nothing says how well a block will learn. Rotary positions do not prefer "
    "near tokens yet: logits have mean 0 at every distance, and only keys that are alike notice that they are turned. "
    "RMSNorm leaves out a mean that the stream does not have, and grouped heads are uncorrelated: both change no mean. "
    "Every matrix has variance 1/fan_in here, and tokens start independent at q = 1; the models draw N(0, 0.02²) and "
    "start smaller: choose them on Explore. GPT-2's learned positions are part of its input, not of its block.",
    experiment.GatedMlpAndRotary, experiment.run, experiment.verdict,
    (
        Plot(pictures.factors, "What each change does",
             "Dots: measured, bars over seeds. Dashes: theory. Each change on top of those to its left.",
             why=Why("The gate's other factor has mean 0: of two tokens E φφ′ · p is left, 0 at p = 0.")),
        Plot(pictures.correlation, "Token correlation", "GPT-2's block, up to the gate, and Llama's. Lines: theory.",
             why=Why("A plain φ of positive mean passes on (E φ)² of what tokens do not share; a gate does not.")),
        Plot(pictures.turned, "Rotary positions and queries",
             "Gradient² by W_Q of a single layer, with rotary positions over without. Line: theory.",
             why=Why("Of what keys share, turning leaves the mean cosine c: gradient² by (1 − ρ c) / (1 − ρ).")),
    ),
    "Shazeer 2020, arXiv 2002.05202; Su et al. 2021, arXiv 2104.09864; Touvron et al. 2023, arXiv 2302.13971",
)
