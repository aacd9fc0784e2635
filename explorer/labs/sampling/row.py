"""The lab Sampling: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.sampling import experiment, pictures

ROW = Lab(
    "01_sampling", "Foundations", "Sampling",
    "Normal, uniform and truncated normal weights can all be given the same variance, which is what a layer's output "
    "depends on.",
    "A cut at ±2σ leaves only 77 % of the variance, so a truncated normal must start from 1.137 σ. The bounds may "
    "also be plain numbers: torch's truncated normal cuts at ±2 unless it is given others; at a std of 0.02 that is a "
    "hundred standard deviations away and cuts nothing.",
    experiment.Sampling, experiment.run, experiment.verdict,
    (
        Plot(pictures.densities, "Densities", "Filled: drawn. Lines: expected. All have mean 0.",
             why=Why("Only mean and variance reach a layer's output: E y² = fan_in · Var W · E x².")),
        Plot(pictures.variances, "Sample variance", "After n draws, ± its standard error. It should settle at 1.",
             why=Why("The standard error of a normal's sample variance is σ² √(2/n).")),
        Plot(pictures.truncation, "Variance left after a cut", "γ: share of a normal's variance after the cut.",
             why=Why("γ = 1 − 2c × the normal's density at c, over the share that lies within ±c.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620",
)
