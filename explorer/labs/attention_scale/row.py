"""The lab Attention scale: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.attention_scale import experiment, pictures
from explorer.labs.lab import Lab, Plot, Why

ROW = Lab(
    "06_attention_scale", "Foundations", "Attention scale",
    "A product of two d-dimensional vectors has second moment d; undivided, it freezes the softmax onto a few keys. "
    "Dividing by √d, or drawing W_Q that much smaller, have the same effect.",
    "It is said that frozen attention makes gradients vanish. A single row's softmax typically passes little, but on "
    "average more than before, and the path through the logits is d times stronger: the gradients of the stack "
    "explode. The theory's line is the mean over all draws; undivided, few draws carry it, so that the mean of a few "
    "can be half of it or twice. The first two cures hold at initialization only; QK-norm holds when W_Q and W_K grow.",
    experiment.AttentionScale, experiment.run, experiment.verdict,
    (
        Plot(pictures.second_moment, "Second moment against d", "Mean (q·k)². On the line: it is d.",
             why=Why("q·k is a sum of d products, each of second moment 1.")),
        Plot(pictures.entropy, "Entropy of a row",
             "Softmax of n normal logits. It falls from uniform to one-hot with σ.",
             why=Why("H ≈ ln n − σ²/2 for small σ; one-hot beyond σ ≈ √(2 ln n).")),
        Plot(pictures.growth, "Entropy as weights grow", "Divided and T5 coincide; only QK-norm keeps the entropy.",
             why=Why("Logits grow as W_Q times W_K; a norm on queries and keys takes that back.")),
        Plot(pictures.jacobian, "Softmax Jacobian", "‖∂p/∂logits‖². The median goes to 0; the mean does not.",
             why=Why("‖J‖² = Σp² − 2 Σp³ + (Σp²)², which is 0 at one-hot.")),
        Plot(pictures.gradient, "Gradient in a stack",
             "Mean squared ∂L/∂x over the output's. Bands: the draws, wide apart if undivided.",
             why=Why("Without √d, what passes through the logits has d_head times the second moment.")),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Vaswani et al. 2017, arXiv 1706.03762; Raffel 2019, arXiv 1910.10683",
)
