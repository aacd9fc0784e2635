"""The lab Trainability: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.trainability import experiment, pictures

ROW = Lab(
    "17_trainability", "Trainability",
    "What trains can be read off before the first step. With 2N branches of weight α the tokens of a deep stack become "
    "alike from about α = 1/√(2N) on, and there Post-LN stops learning. And the best learning rate falls with the "
    "width, far less under μP.",
    "The border is the theory's at initialization, and training moves it: at one learning rate Post-LN's falls faster "
    "than 1/√N, as each step of Adam also adds up over the branches. Pre-LN has no sharp border, it only learns ever "
    "more slowly; Keel's is at the same α at any depth, as its stream is weighed 2N. Each cell is one training of a "
    "small model for sixty steps or fewer: a single cell may be luck.",
    experiment.Trainability, experiment.run, experiment.verdict,
    (
        Plot(pictures.trained, "Trained: α over depth",
             "Colors: loss below the unigram's. Lines: token correlation before; from ½ on it stalls.",
             why=Why("Each branch averages tokens: 1 − ρ falls by about 1 / (1 + α²) a branch.")),
        Plot(pictures.alike, "Before training: token correlation",
             "The same designs, untrained. At 1 all tokens are alike.",
             why=Why("At ρ = 1 all keys are alike: attention has nothing to choose, and no logit gets a gradient.")),
        Plot(pictures.published, "Four designs, shallow and deep",
             "At α = 1. Above the upper line a model has learned.",
             why=Why("DeepNorm's branch weighs (8N)^(−½) (2N)^(−¼) of its stream, Keel's 1/(2N).")),
        Plot(pictures.standard, "Learning rate over width, standard",
             "Loss below the unigram's. The best rate falls as the width grows.",
             why=Why("Adam moves each weight by η: against standard weights of size 1/√m that is η √m.")),
        Plot(pictures.mup, "Learning rate over width, μP", "The best rate hardly moves.",
             why=Why("μP divides a matrix's learning rate by its fan_in.")),
    ),
    "Wang et al. 2022, arXiv 2203.00555; Giorlandino & Goldt 2025, arXiv 2505.24333; Chen & Wei 2026, arXiv "
    "2601.19895; Yang et al. 2022, arXiv 2203.03466; Xiong et al. 2020, arXiv 2002.04745",
    grows=True,
)
