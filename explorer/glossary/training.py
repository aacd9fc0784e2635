"""Symbols of training: optimizers and schedules."""

from __future__ import annotations

from explorer.glossary.term import Term

ROWS = (
    Term("η", "Learning rate", "Factor on a step. With Adam each weight first moves by about η, whatever its gradient.",
         unit="1e-4 to 3e-3 for Adam", lab="05_parametrization", source="Kingma & Ba 2014", fields=("learning_rate",)),
    Term("β₁", "Momentum", "Share of the mean gradient that is kept from step to step.", "m ← β₁ m + (1 − β₁) g", "0.9",
         source="Kingma & Ba 2014", marks=("β₁", "β")),
    Term("β₂", "Memory of squares", "Share of the mean squared gradient that is kept from step to step.",
         "v ← β₂ v + (1 − β₂) g²", "0.95 to 0.999", source="Kingma & Ba 2014"),
    Term("r", "Muon's rate", "Learning rate of the layers' matrices, as a multiple of the others'.", unit="× η",
         source="Muon: Jordan et al. 2024", marks=(), fields=("muon_rate",)),
    Term("μ", "Muon's momentum", "Share of the mean gradient of the layers' matrices that is kept.", unit="0.95",
         source="Moonlight: Liu et al. 2025"),
    Term("λ", "Weight decay", "Pulls matrices to zero.", "AdamW: W ← (1 − η λ) W − η m / √v", "0 to 0.1",
         source="Loshchilov & Hutter 2017", marks=(), fields=("weight_decay",)),
    Term("‖g‖", "Gradient norm", "Of all gradients together; above the limit they are scaled down to it.",
         unit="limit 1 in most language models; 0: none", source="Pascanu et al. 2012", fields=("clip",)),
    Term("q·k ≤", "QK-clip", "Where a head's largest logit exceeds this, its W_Q and W_K are scaled down.",
         unit="100 in Kimi K2; 0: none", source="Kimi K2, Bai et al. 2025", marks=(), fields=("qk_clip",)),
    Term("T", "Warm-up", "Steps in which the learning rate, or α, rises to its full value.", "η t / T up to step T",
         "1: none; 500 to 4000", "11_warmup", "Xiong et al. 2020", fields=("warmup", "alpha_steps")),
    Term("like this", "Random designs that were trained",
         "At width 32, on the next character of English text, 200 steps of Adam at 0.003, half of them with 100 of "
         "warm-up. Trained: held-out loss at least 0.3 nats below the unigram level. Like this: the 40 whose chance to "
         "train is nearest, by gradient, difference of the tokens, entropy of attention, and kind of norm.",
         unit="2 to 48 layers, init variance 0.03 to 30, any width here", marks=("random designs like this",)),
)
