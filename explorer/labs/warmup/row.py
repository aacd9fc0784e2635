"""The lab Warm-up: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot
from explorer.labs.warmup import experiment, pictures

ROW = Lab(
    "11_warmup", "Training",
    "Warm-up",
    "Post-LN needs a learning rate that rises slowly: without warm-up it stalls, with Adam as with SGD. Pre-LN "
    "trains without warm-up. Before the first step Post-LN's gradients are large; after the warm-up they are "
    "small.",
    "Warm-up treats the symptom. A stall is not one step that was too long, but its consequence: all tokens "
    "become alike, and then no gradient passes the layers. In these small models RAdam, whose first steps are "
    "small, needs no warm-up either (8 of 8 seeds), although the paper calls it no substitute. This lab trains "
    "six models, which takes about twenty seconds.",
    experiment.Warmup, experiment.run, experiment.verdict,
    (
        Plot("losses", "Held-out loss", "Nats a character. A stalled model stays at the unigram's level.",
             pictures.losses),
        Plot("before", "Gradients before the first step", "All matrices of a layer, as drawn: the same for any T.",
             pictures.before),
        Plot("warm", "Gradients when warm-up ends", "The same, at step T of the long one. Low at the left: lost.",
             pictures.warm),
        Plot("ends", "Gradients at the end", "The same, after the last step. Even layers train together.",
             pictures.ends),
        Plot("ratio", "First layer over last", "Gradient of the first layer's matrices. Far below 1: vanishing.",
             pictures.ratio),
        Plot("correlation", "What a stall is", "Overlap of the tokens after the last layer. 1: all are alike.",
             pictures.correlation),
    ),
    "Xiong et al. 2020, arXiv 2002.04745",
)
