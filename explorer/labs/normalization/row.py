"""The lab Normalization: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.normalization import experiment, pictures

ROW = Lab(
    "04_normalization", "Normalization",
    "A norm resets the second moment to 1. Norms differ in what they average together, and whether they subtract the "
    "mean.",
    "RMSNorm does not center: a constant offset passes, and can be most of the output. BatchNorm and InstanceNorm "
    "average over tokens, so a causal model would see its future, and of a batch of one token nothing is left. A norm "
    "works only while ε is small beside the variance: a zero vector stays zero.",
    experiment.Normalization, experiment.run, experiment.verdict,
    (
        Plot(pictures.groups, "Values averaged together", "A small tensor. Full color: one entry. Faint: its group."),
        Plot(pictures.one_by_one, "Single tokens and features",
             "Mean y² of each, before and after. All at 1: that norm makes them equal."),
        Plot(pictures.offset, "A constant offset", "Share of the output that is one constant. 0: removed."),
        Plot(pictures.epsilon, "Scale and ε", "Mean y² against the input's size. Lines: v / (v + ε).",
             why=Why("A norm makes y² = v / (v + ε) of a variance v.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Ba et al. 2016, arXiv 1607.06450; Zhang & Sennrich 2019, arXiv 1910.07467",
)
