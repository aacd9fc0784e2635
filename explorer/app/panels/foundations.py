"""The Foundations panel: its labs, a row each."""

from __future__ import annotations

from explorer.app.panels.lab import Lab, Plot
from explorer.figures.labs import activations as activations_figures
from explorer.figures.labs import attention_scale as attention_scale_figures
from explorer.figures.labs import normalization as normalization_figures
from explorer.figures.labs import parametrization as parametrization_figures
from explorer.figures.labs import sampling as sampling_figures
from explorer.figures.labs import second_moment as second_moment_figures
from explorer.labs import activations, attention_scale, normalization, parametrization, sampling, second_moment

ROWS = (
    Lab(
        "01_sampling",
        "Sampling",
        "Normal, uniform and truncated normal weights can all be given the same variance, which is what a layer's "
        "output depends on.",
        "A cut at ±2σ leaves only 77 % of the variance, so a truncated normal must start from 1.137 σ. The bounds may "
        "also be plain numbers: torch's truncated normal cuts at ±2 unless it is given others; at a std of 0.02 that "
        "is a hundred standard deviations away and cuts nothing.",
        sampling.Sampling, sampling.run, sampling.verdict,
        (
            Plot("densities", "Densities", "Filled: drawn. Lines: expected. All have mean 0.",
                 sampling_figures.densities),
            Plot("variances", "Sample variance", "After n draws, ± its standard error. It should settle at 1.",
                 sampling_figures.variances),
            Plot("tails", "Tails", "Share of weights far from 0. Equal variances, very unequal tails.",
                 sampling_figures.tails),
            Plot("truncation", "What a cut leaves", "γ: share of a normal's variance after the cut.",
                 sampling_figures.truncation),
        ),
        "Essay: Su Jianlin 2021, kexue 8620",
    ),
    Lab(
        "02_second_moment",
        "Second moment",
        "A linear layer multiplies the second moment by fan_in · Var W, whatever the mean of its input.",
        "This is often said of variances, which is false for an input with a mean, such as a relu's output: the "
        "factor is on E x². The gradient is multiplied by fan_out · Var W: where a layer widens or narrows, no "
        "variance keeps both, and with the usual compromise, 2 / (fan_in + fan_out), both change with depth.",
        second_moment.SecondMoment, second_moment.run, second_moment.verdict,
        (
            Plot("both_ways", "Forward against backward",
                 "One layer n → m. A variance that keeps both would stand at 1, 1.", second_moment_figures.both_ways),
            Plot("input_mean", "The input's mean",
                 "Factor of one layer on E x², over n · Var W. Flat: the mean does not matter.",
                 second_moment_figures.input_mean),
            Plot("signal", "Signal through a stack",
                 "Mean x² after each layer n → m → n → m. Lines: the factors alone.", second_moment_figures.signal),
            Plot("gradient", "Gradient through a stack",
                 "Mean squared ∂L/∂x, relative to the output: it runs from right to left.",
                 second_moment_figures.gradient),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; LeCun et al. 1998; He et al. 2015, arXiv 1502.01852; Glorot & Bengio 2010",
    ),
    Lab(
        "03_activations",
        "Activations",
        "An activation changes the second moment by a known factor: divide by it, in the init variance or in the "
        "activation itself, and the signal keeps its size at any depth, in expectation.",
        "A draw of finite width scatters around that, more when it is deeper or narrower. The fixed point q = 1 need "
        "not be stable: for gelu and silu a small deviation grows from layer to layer. The gradient is not kept "
        "either: it is multiplied by χ = n · Var W · E φ′², which is 1 for relu, above 1 for most others, and far "
        "below 1 for a sigmoid unless its mean is removed.",
        activations.Activations, activations.run, activations.verdict,
        (
            Plot("shape", "The activation", "The activation, its slope, and the density of its inputs.",
                 activations_figures.shape),
            Plot("moments", "Moments", "Under N(0, 1). Bars: by quadrature. Dots: by sampling.",
                 activations_figures.moments),
            Plot("signal", "Signal by layer", "Mean x² in the MLP: two draws, and the recursion as a line.",
                 activations_figures.signal),
            Plot("gradient", "Gradient by layer", "Mean (∂L/∂x)², relative to the output. Slope: χ.",
                 activations_figures.gradient),
            Plot("length_map", "From layer to layer",
                 "The next layer's q against this one's. Dotted: equal. Stable where V crosses from above.",
                 activations_figures.length_map),
            Plot("selu", "SELU, solved", "λ and α must keep mean 0 and a variance: two conditions, one crossing.",
                 activations_figures.selu),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; He et al. 2015, arXiv 1502.01852; Klambauer et al. 2017, arXiv 1706.02515",
    ),
    Lab(
        "04_normalization",
        "Normalization",
        "A norm resets the second moment to 1. Norms differ in what they average together, and whether they subtract "
        "the mean.",
        "RMSNorm does not center: a constant offset passes, and can be most of the output. BatchNorm and InstanceNorm "
        "average over tokens, so a causal model would see its future, and of a batch of one token nothing is left. A "
        "norm works only while ε is small beside the variance: a zero vector stays zero.",
        normalization.Normalization, normalization.run, normalization.verdict,
        (
            Plot("sharing", "Who is averaged together", "A small tensor. Full color: one entry. Faint: its group.",
                 normalization_figures.sharing),
            Plot("by_token", "Token by token", "Mean y² of single tokens. Gray: the input. Flat at 1: all equal.",
                 normalization_figures.by_token),
            Plot("by_feature", "Feature by feature",
                 "Mean y² of single features. Gray: the input. Flat at 1: all equal.",
                 normalization_figures.by_feature),
            Plot("offset", "A constant offset", "Share of the output that is one constant. 0: removed.",
                 normalization_figures.offset),
            Plot("epsilon", "Scale and ε", "Mean y² against the input's size. Lines: v / (v + ε).",
                 normalization_figures.epsilon),
            Plot("cost", "What a call costs", "Measured on this machine. Dotted: x + x. Whiskers: quartiles.",
                 normalization_figures.cost),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; Ba et al. 2016, arXiv 1607.06450; Zhang & Sennrich 2019, arXiv 1910.07467",
    ),
    Lab(
        "05_parametrization",
        "Parametrization",
        "Standard, NTK and μP can start as the same function; what differs is how far one learning rate moves them. "
        "Under μP the best learning rate is meant to be the same at every width.",
        "The same function is not the same training: NTK moves each weight by η under Adam where standard moves it by "
        "η √m of its size. Under SGD NTK's learning rate transfers too, but its features hardly move. And μP's readout "
        "shrinks with the width, so that it equals standard only at the base width, 32 here.",
        parametrization.Parametrization, parametrization.run, parametrization.verdict,
        (
            Plot("best_rate", "Best learning rate by width", "Over the narrowest network's. Flat at 1: it transfers.",
                 parametrization_figures.best_rate),
            Plot("transferred", "Tuned narrow, used wide",
                 "Loss with the learning rate that is best at m = 32. Falling: width helps.",
                 parametrization_figures.transferred),
            Plot("sweep_standard", "Sweep: standard", "Loss after the steps; a curve a width. Ring: its best.",
                 parametrization_figures.sweep("standard")),
            Plot("sweep_mup", "Sweep: μP", "The same networks, μP's readout and learning rates by width.",
                 parametrization_figures.sweep("mup")),
            Plot("sweep_ntk", "Sweep: NTK", "Stored weights N(0, 1), so its learning rates are larger.",
                 parametrization_figures.sweep("ntk")),
            Plot("functions", "Before training", "Outputs against standard's. On the diagonal: the same function.",
                 parametrization_figures.functions),
            Plot("first_weights", "First step: the weights", "Relative change of the hidden matrix. Lines: theory.",
                 parametrization_figures.first_weights),
            Plot("first_output", "First step: what they do", "Relative change of its output. Flat: safe at any width.",
                 parametrization_figures.first_output),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; Jacot et al. 2018, arXiv 1806.07572; Yang et al. 2022, arXiv 2203.03466",
    ),
    Lab(
        "06_attention_scale",
        "Attention scale",
        "A product of two d-dimensional vectors has second moment d; undivided, it freezes the softmax onto a few "
        "keys. Dividing by √d, or drawing W_Q that much smaller, have the same effect.",
        "It is said that frozen attention makes gradients vanish. A single row's softmax typically passes little, but "
        "on average more than before, and the path through the logits is d times stronger: the gradients of the stack "
        "explode. The theory's line is the mean over all draws; undivided, few draws carry it, so that the mean of a "
        "few can be half of it or twice. The first two cures hold at initialization only; QK-norm holds when W_Q and "
        "W_K grow.",
        attention_scale.AttentionScale, attention_scale.run, attention_scale.verdict,
        (
            Plot("histogram", "Products q·k", "Histogram of draws, and a normal of variance d.",
                 attention_scale_figures.histogram),
            Plot("second_moment", "Second moment against d", "Mean (q·k)². On the line: it is d.",
                 attention_scale_figures.second_moment),
            Plot("entropy", "Entropy of a row", "Softmax of n normal logits. It falls from uniform to one-hot with σ.",
                 attention_scale_figures.entropy),
            Plot("largest", "Largest weight", "Mean of a row's largest probability.", attention_scale_figures.largest),
            Plot("growth", "When the weights grow", "Entropy. Divided and T5 coincide; only QK-norm keeps it.",
                 attention_scale_figures.growth),
            Plot("jacobian", "Softmax Jacobian", "‖∂p/∂logits‖². The median goes to 0; the mean does not.",
                 attention_scale_figures.jacobian),
            Plot("depth_entropy", "In a stack: entropy", "Each layer of a Pre-LN Transformer. Lines: theory.",
                 attention_scale_figures.depth_entropy),
            Plot("depth_gradient", "In a stack: gradient",
                 "Mean squared ∂L/∂x over the output's. Bars: the draws, wide apart if undivided.",
                 attention_scale_figures.depth_gradient),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; Vaswani et al. 2017, arXiv 1706.03762; Raffel 2019, arXiv 1910.10683",
    ),
)
