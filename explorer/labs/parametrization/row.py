"""The lab Parametrization: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.parametrization import experiment, pictures

ROW = Lab(
    "05_parametrization", "Parametrization",
    "Standard, NTK and μP can start as the same function; what differs is how far one learning rate moves them. Under "
    "μP the best learning rate is meant to be the same at every width.",
    "The same function is not the same training: NTK moves each weight by η under Adam where standard moves it by η "
    "√m of its size. Under SGD NTK's learning rate transfers too, but its features hardly move. And μP's readout "
    "shrinks with the width, so that it equals standard only at the base width, 32 here.",
    experiment.Parametrization, experiment.run, experiment.verdict,
    (
        Plot(pictures.best_rate, "Best learning rate by width",
             "Over the narrowest network's. Flat at 1: it transfers."),
        Plot(pictures.sweeps, "Learning rate sweeps",
             "Loss after the steps. Solid: widest; dotted: narrowest, where μP is standard. Rings: best."),
        Plot(pictures.first_step, "First step",
             "Relative change. Full: the hidden weights. Hollow: their outputs. Flat: any width is safe.",
             why=Why("Adam moves each weight by η: against standard weights of size 1/√m that is η √m.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Jacot et al. 2018, arXiv 1806.07572; Yang et al. 2022, arXiv 2203.03466",
)
