"""The lab Parametrization: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot
from explorer.labs.parametrization import experiment, pictures

ROW = Lab(
    "05_parametrization", "Foundations",
    "Parametrization",
    "Standard, NTK and μP can start as the same function; what differs is how far one learning rate moves them. "
    "Under μP the best learning rate is meant to be the same at every width.",
    "The same function is not the same training: NTK moves each weight by η under Adam where standard moves it by "
    "η √m of its size. Under SGD NTK's learning rate transfers too, but its features hardly move. And μP's readout "
    "shrinks with the width, so that it equals standard only at the base width, 32 here.",
    experiment.Parametrization, experiment.run, experiment.verdict,
    (
        Plot("best_rate", "Best learning rate by width", "Over the narrowest network's. Flat at 1: it transfers.",
             pictures.best_rate),
        Plot("transferred", "Tuned narrow, used wide",
             "Loss with the learning rate that is best at m = 32. Falling: width helps.",
             pictures.transferred),
        Plot("sweep_standard", "Sweep: standard", "Loss after the steps; a curve a width. Ring: its best.",
             pictures.sweep("standard")),
        Plot("sweep_mup", "Sweep: μP", "The same networks, μP's readout and learning rates by width.",
             pictures.sweep("mup")),
        Plot("sweep_ntk", "Sweep: NTK", "Stored weights N(0, 1), so its learning rates are larger.",
             pictures.sweep("ntk")),
        Plot("functions", "Before training", "Outputs against standard's. On the diagonal: the same function.",
             pictures.functions),
        Plot("first_weights", "First step: the weights", "Relative change of the hidden matrix. Lines: theory.",
             pictures.first_weights),
        Plot("first_output", "First step: what they do", "Relative change of its output. Flat: safe at any width.",
             pictures.first_output),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Jacot et al. 2018, arXiv 1806.07572; Yang et al. 2022, arXiv 2203.03466",
)
