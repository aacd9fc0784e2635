"""Symbols of what is measured and predicted: the signal, its gradient, attention."""

from __future__ import annotations

from explorer.glossary.term import Term

ROWS = (
    Term("q", "Second moment",
         "Mean of x² over batch, tokens and coordinates of the residual stream: the size of the signal, whatever its "
         "mean.", "q = mean x²; without a norm on the sum, q_l = q_(l−1) + α² E F²", "input² units; 1 after a norm",
         "02_second_moment", "Poole et al. 2016", ("q", "q_l", "q_(l−1)", "q_L", "x²", "q = mean x²")),
    Term("q₀", "Second moment of the input", "Mean square of the coordinates that enter the first layer.",
         unit="1; GPT-2: 8e-4", lab="02_second_moment"),
    Term("ρ", "Token correlation",
         "Mean overlap of two different tokens, divided by the second moment. At 1 all tokens are alike, and attention "
         "has nothing to choose from: rank collapse.", "ρ = p / q, p = mean of x_s·x_t / d over tokens s ≠ t",
         "0 unrelated, 1 all alike", "13_gated_mlp_and_rotary", "Dong et al. 2021", ("ρ", "ρ = p / q")),
    Term("ρ₀", "Correlation of the input", "Overlap of two different input tokens, as a share of q₀.",
         unit="0 to 1", source="Dong et al. 2021"),
    Term("γ", "Gradient by layer",
         "Mean of (∂L/∂x)² per coordinate, relative to the last layer. (In the lab Sampling, the share of variance "
         "that a cut leaves.)", "without norms γ_(l−1) = γ_l (1 + α² χ)", "1 at the last layer; flat: all train evenly",
         "09_norm_placement", "Xiong et al. 2020",
         ("γ", "γ_l", "γ_(l−1)", "γ_N", "γ / γ_N", "∂L/∂x", "∂L/∂y", "‖∂L/∂x‖")),
    Term("‖∂L/∂W‖", "Gradient by matrix",
         "Frobenius norm of the loss gradient by one matrix: what the first step of gradient descent moves most.",
         "‖∂L/∂W‖² = Σ (∂L/∂w)² over the entries w", "loss/weight; even over the layers",
         "09_norm_placement", "Xiong et al. 2020", ("‖∂L/∂W‖", "∂L/∂W", "‖∂L/∂W_Q‖")),
    Term("H", "Attention entropy",
         "Shannon entropy of a row of attention. Near 0 a token reads a single other one, and training tends to be "
         "unstable.", "H = −Σ p ln p; near ln n − σ²/2 for logits of std σ well below 1",
         "nats, or as a share of ln n: 1 uniform, 0 one-hot", "06_attention_scale", "Zhai et al. 2023",
         ("H", "H / ln n")),
    Term("max p", "Largest attention weight", "Mean over rows of the largest weight of a row of attention.",
         unit="1/n uniform, 1 one-hot", lab="06_attention_scale"),
    Term("s", "Logit spread", "RMS over keys of a row's attention logits, their mean subtracted.",
         "s² = g_Q g_K q (q − p) with √d, g = fan_in · Var W", "1 for unrelated tokens of unit second moment",
         "06_attention_scale", "Vaswani et al. 2017", (), ("logit_std",)),
    Term("max |x|", "Largest coordinate",
         "Largest |x| of the batch. What is larger than the number format's end becomes infinite.",
         unit="float16 ends at 65,504", marks=("max |x|", "|x|")),
    Term("mean s⁴ / (mean s²)²", "Kurtosis of features",
         "Of each coordinate's RMS s over a sequence: how unequal features are. Outlier features lose precision.",
         unit="1 all alike, d one has it all", source="He et al. 2024"),
    Term("fan_in · mean W²", "Weight variance", "Mean square of a matrix's entries times its fan_in: the factor by "
         "which it multiplies the second moment.", unit="1 keeps a unit second moment", lab="02_second_moment"),
    Term("max cos(W_l, W_k)", "Likeness of weights",
         "Largest cosine between a matrix and the same one of another layer.", unit="0 independent, 1 a copy"),
    Term("χ", "Gradient factor",
         "Factor of one layer on the mean squared gradient. Above 1 gradients explode over depth, below 1 they vanish.",
         "χ = fan_in · Var W · E φ′² for fan_in = fan_out", "1 keeps the gradient", "03_activations",
         "Schoenholz et al. 2016"),
    Term("E", "Expectation", "Mean over random weights or inputs. (In W_U = E, the embedding matrix.)",
         lab="01_sampling"),
    Term("q·k", "Attention logit",
         "Product of a query and a key; the softmax over keys makes weights of them. In RealFormer, A_l adds those of "
         "the layers below.", "E(q·k)² = d_head for unit q, k", "about 1 after dividing by √d_head",
         "06_attention_scale", "Vaswani et al. 2017", ("q·k", "q_l·k_l", "(q·k)²", "(Σ q)·(Σ k)", "A_l", "A_(l−1)")),
    Term("√d", "Divisor of the logits",
         "Product of two vectors of d_head unit coordinates has second moment d_head. Divided by √d_head it is 1, and "
         "the softmax stays soft at any width.", "q·k / √d_head", "√d_head; μP: d_head", "06_attention_scale",
         "Vaswani et al. 2017", ("√d", "√d_head"), ("attention_scale",)),
    Term("‖J‖²", "Softmax Jacobian",
         "Sum of squared derivatives of a row's weights by its logits: what passes back through the softmax.",
         "‖J‖² = Σp² − 2 Σp³ + (Σp²)²", "1 / logit²", "06_attention_scale",
         marks=("‖J‖²", "‖J‖", "‖∂p/∂logits‖", "‖∂p/∂logits‖²")),
    Term("2^(−l/2)", "Weight of the identity path",
         "Factor on the input after l branches of Post-LN: each norm divides a sum of two unit terms by √2. It is not "
         "how the gradient decays.", lab="07_residual", source="Su Jianlin 2021, kexue 8620"),
    Term("ΔL", "Change of the loss",
         "Of one step of gradient descent. To first order it is −η‖∇L‖²; where it is less, the step is too long.",
         "ΔL ≈ −η‖∇L‖²", lab="08_why_residuals", source="Su Jianlin 2022, kexue 8994",
         marks=("ΔL", "‖∇L‖", "‖∇L‖²", "−η‖∇L‖²")),
    Term("‖ΔW‖ / ‖W‖", "Relative update", "Change of a matrix in one step over its size.", unit="ratio",
         lab="05_parametrization", marks=("‖ΔW‖ / ‖W‖", "‖ΔW‖", "‖W‖")),
)
