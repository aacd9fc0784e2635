"""The words of the longer choices of `Config`: every option's formula and source, as they stand beside a control."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from explorer.fields import Option

SCALE_RULES: Mapping[str, Option] = MappingProxyType({
    "lecun": Option("1 / fan_in", "LeCun et al. 1998"),
    "xavier": Option("2 / (fan_in + fan_out)", "Glorot & Bengio 2010"),
    "he": Option("2 / fan_in", "He et al. 2015"),
    "fan_out": Option("1 / fan_out", "He et al. 2015, backward form"),
    "bert": Option("0.02², whatever the shape", "BERT: Devlin et al. 2018"),
    "gpt2": Option("0.02²; W_O, W_out: 0.02² / (2N)", "GPT-2: Radford et al. 2019"),
    "t5": Option("1 / fan_in; W_Q: 1 / (d d_head), so no √d divisor", "T5: Raffel et al. 2020"),
    "torch_default": Option("1 / (3 fan_in); Q, K, V: 1 / (2 d)",
                            "torch.nn.TransformerEncoderLayer; nn.TransformerEncoder differs: it copies one layer"),
})
ACTIVATIONS: Mapping[str, Option] = MappingProxyType({
    "relu": Option("max(0, x)", "Nair & Hinton 2010"),
    "gelu": Option("x Φ(x)", "Hendrycks & Gimpel 2016"),
    "silu": Option("x / (1 + e⁻ˣ)", "Elfwing et al. 2017"),
    "elu": Option("x, or eˣ − 1 below 0", "Clevert et al. 2015"),
    "selu": Option("λ·elu with α, mean 0 and variance 1", "Klambauer et al. 2017"),
    "tanh": Option("tanh x"),
    "sigmoid": Option("1 / (1 + e⁻ˣ)"),
    "identity": Option("x"),
})
PLACEMENTS: Mapping[str, Option] = MappingProxyType({
    "none": Option("x + F(x)"),
    "pre": Option("x + F(N(x))", "Pre-LN: Xiong et al. 2020"),
    "post": Option("N(x + F(x))", "Post-LN: Vaswani et al. 2017"),
    "peri": Option("x + N(F(N(x)))", "Sandwich-LN: Ding et al. 2021; Peri-LN: Kim et al. 2025"),
    "branch_output": Option("x + N(F(x))", "Swin v2: Liu et al. 2022; OLMo 2 2025"),
    "scaled_pre": Option("x + F(N(x) / √l) in layer l", "LayerNorm scaling: Sun et al. 2025"),
    "mix": Option("post in the first quarter of the layers, pre behind", "Mix-LN: Li et al. 2025"),
})
RESIDUALS: Mapping[str, Option] = MappingProxyType({
    "absent": Option("F(x)"),
    "constant": Option("x + α F(x)", "He et al. 2015"),
    "scaled_skip": Option("α x + F(x)", "Highway form: Srivastava et al. 2015"),
    "rezero": Option("x + α F(x), one α a layer, learned from 0", "ReZero: Bachlechner et al. 2020"),
    "skipinit": Option("x + α F(x), one α a branch, learned from 0", "SkipInit: De & Smith 2020"),
    "layer_scale": Option("x + λ ⊙ F(x), λ learned from 0.1, 1e-5 or 1e-6", "CaiT: Touvron et al. 2021"),
    "inverse_sqrt_depth": Option("x + F(x) / √(2N)", "Taki 2017; Bordelon et al. 2023"),
    "inverse_depth": Option("x + F(x) / (2N)", "Hanin & Rolnick 2018"),
    "scaled_init": Option("x + F(x), W_O W_out × 1/√(2N)", "GPT-2: Radford et al. 2019"),
    "fixup": Option("x + F(x), W_O W_out = 0, W_V W_in × 1/√(2N)", "Fixup: Zhang et al. 2019"),
    "t_fixup": Option("x + F(x), W_V W_O MLP × 0.67 N^−¼", "T-Fixup: Huang et al. 2020, encoder"),
    "deepnorm": Option("(2N)^¼ x + F(x), W_V W_O MLP × (8N)^−¼", "DeepNet: Wang et al. 2022"),
    "admin": Option("ω x + F(x), ω² + 1 = (2N + 1) / ln(2N + 1)", "Admin: Liu et al. 2020"),
})
