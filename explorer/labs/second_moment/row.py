"""The lab Second moment: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.second_moment import experiment, pictures

ROW = Lab(
    "02_second_moment", "Foundations", "Second moment",
    "A linear layer multiplies the second moment by fan_in · Var W, whatever the mean of its input.",
    "This is often said of variances, which is false for an input with a mean, such as a relu's output: the factor is "
    "on E x². The gradient is multiplied by fan_out · Var W: where a layer widens or narrows, no variance keeps both, "
    "and with the usual compromise, 2 / (fan_in + fan_out), both change with depth.",
    experiment.SecondMoment, experiment.run, experiment.verdict,
    (
        Plot(pictures.both_ways, "Forward against backward",
             "One layer n → m. A variance that keeps both would stand at 1, 1.",
             why=Why("Forward the factor is n · Var W, back it is m · Var W: both are 1 only where n = m.")),
        Plot(pictures.input_mean, "The input's mean",
             "Factor of one layer on E x², over n · Var W. Flat: the mean does not matter.",
             why=Why("E y² = n · Var W · E x²: only the weights must have mean 0.")),
        Plot(pictures.signal, "Signal through a stack",
             "Mean x² after each layer n → m → n → m. Lines: the factors alone.",
             why=Why("Each layer multiplies q by fan_in · Var W.")),
        Plot(pictures.gradient, "Gradient through a stack",
             "Mean squared ∂L/∂x, relative to the output: it runs from right to left.",
             why=Why("Each layer multiplies the mean squared gradient by fan_out · Var W.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; LeCun et al. 1998; He et al. 2015, arXiv 1502.01852; Glorot & Bengio 2010",
)
