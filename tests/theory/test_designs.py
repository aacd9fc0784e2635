"""Designs of the stream against measurement: norms, where they stand, residual rules, several
streams, inputs."""

from typing import Any

import pytest
from trial import NO_NORM, SMALL, holds_everywhere

DESIGNS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_placement": "post"},
    "peri": {"norm_placement": "peri"},
    "deepnorm": {"norm_placement": "post", "residual": "deepnorm"},
    "no norm": {"norm_placement": "none", "residual": "inverse_sqrt_depth"},
    "no root d": {"attention_scale": "none"},
    "mu-P scale": {"attention_scale": "d"},
    "QK-norm": {"qk_norm": True},
    "causal": {"causal": True},
    "causal post": {"causal": True, "norm_placement": "post"},
    "causal, no root d": {"causal": True, "attention_scale": "none"},
    "causal, no norm": {"causal": True, "norm_placement": "none", "residual": "inverse_sqrt_depth"},
    "rms": {"norm": "rms"},
    "gelu": {"activation": "gelu", "activation_rescaled": False},
    "tanh": {"activation": "tanh"},
    "selu, no norm": {
        "activation": "selu",
        "norm_placement": "none",
        "residual": "inverse_sqrt_depth",
    },
    "sigmoid": {"activation": "sigmoid"},
    "torch's scales": {"scale_rule": "torch_default"},
    "wide init": {"init_variance": 4.0},
    "correlated": {"input": "correlated"},
    "text": {"input": "text"},
    "next token": {"input": "text", "loss": "next_token"},
    "ntk": {"parametrization": "ntk", "norm_placement": "peri"},
    "plain stack": {"residual": "absent", "n_layers": 2},
    "RealFormer": {"norm_placement": "post", "residual_attention": "scores"},
    "RealFormer, causal": {
        "norm_placement": "post",
        "residual_attention": "scores",
        "causal": True,
    },
    "RealFormer without √d, pre": {
        "residual_attention": "scores",
        "attention_scale": "none",
        "n_layers": 3,
    },
    "queries and keys added up": {"residual_attention": "qk", "qk_norm": True},
    "queries and keys added up, causal": {
        "residual_attention": "qk",
        "causal": True,
        "norm": "rms",
    },
    "soft cap": {"logit_cap": 10.0},
    "soft cap, causal": {"logit_cap": 10.0, "causal": True},
    "no attention, post": {"attention": "none", "norm_placement": "post"},
    "no attention, pre": {"attention": "none"},
    "branch output": {"norm_placement": "branch_output", "norm": "rms"},
    "LayerNorm scaling": {"norm_placement": "scaled_pre"},
    "LayerNorm scaling, causal": {"norm_placement": "scaled_pre", "causal": True},
    "Mix-LN": {"norm_placement": "mix", "n_layers": 4},
    "Mix-LN, causal": {"norm_placement": "mix", "n_layers": 4, "causal": True, "n_seeds": 12},
    "Keel": {"norm_placement": "keel"},
    "Keel, causal": {"norm_placement": "keel", "causal": True},
    "Keel, alike": {"norm_placement": "keel", "input": "correlated", "alpha": 2.0},
    **{
        f"{name}{', causal' * causal}": {**choices, "causal": causal}
        for causal in (False, True)
        for name, choices in {
            "HybridNorm": {"norm_placement": "hybrid", "norm": "rms"},
            "HybridNorm*": {"norm_placement": "hybrid_star"},
            "SubLN": {"norm_placement": "subln"},
            "Magneto": {"norm_placement": "subln", "residual": "magneto"},
            "NormFormer": {"norm_placement": "normformer", "activation": "gelu"},
            "DyT": {"norm": "dyt"},
            "Derf": {"norm": "derf", "norm_alpha": 2.0, "input": "correlated"},
            "Derf, peri": {"norm": "derf", "norm_placement": "peri"},
            "DyT, SwiGLU": {
                "norm": "dyt",
                "mlp": "gated",
                "activation": "silu",
                "norm_placement": "scaled_pre",
            },
            "nGPT": {
                "norm_placement": "ngpt",
                "norm": "rms",
                "qk_norm": True,
                "mlp": "gated",
                "activation": "silu",
            },
        }.items()
    },
    "no final norm": {"final_norm": "no"},
    "a norm too many": {"norm_placement": "post", "final_norm": "yes"},
    "skip scaled": {"norm_placement": "post", "residual": "scaled_skip", "alpha": 2.0},
    "Admin": {"norm_placement": "post", "residual": "admin"},
    **{
        f"Admin, profiled{name}": {
            "norm_placement": "post",
            "residual": "admin_profiled",
            **choices,
        }
        for name, choices in {
            "": {},
            ", causal": {"causal": True},
            ", no attention": {"attention": "none"},
            ", a small input, copies": {**SMALL, "layer_weights": "copied", "n_layers": 3},
        }.items()
    },
    "DeepNorm's encoder": {"norm_placement": "post", "residual": "deepnorm_encoder"},
    "DeepNorm's decoder": {
        "norm_placement": "post",
        "residual": "deepnorm_decoder",
        "causal": True,
    },
    "LayerScale": {"residual": "layer_scale"},
    "LayerScale, causal": {"residual": "layer_scale", "causal": True},
    "Fixup": {"norm_placement": "none", "residual": "fixup"},
    "Fixup, causal": {"norm_placement": "none", "residual": "fixup", "causal": True},
    "T-Fixup": {"norm_placement": "none", "residual": "t_fixup", "scale_rule": "xavier"},
    "scaled init": {"residual": "scaled_init"},
    "parallel": {"stream": "parallel"},
    "parallel, causal": {"stream": "parallel", "causal": True},
    "parallel, peri, RealFormer": {
        "stream": "parallel",
        "norm_placement": "peri",
        "residual_attention": "scores",
    },
    "parallel, no norm, causal": {"stream": "parallel", **NO_NORM, "causal": True},
    "parallel, no attention": {"stream": "parallel", "attention": "none"},
    "hyper-connections": {"stream": "hyper"},
    "mHC, causal": {"stream": "manifold", "causal": True},
    "AttnRes": {"stream": "depth_attention"},
    "AttnRes, ε as large as what is read, causal": {
        "stream": "depth_attention",
        "norm_epsilon": 0.1,
        "causal": True,
    },
    "mHC, ε as large as what is read": {"stream": "manifold", "norm_epsilon": 1.0, "norm": "rms"},
    "CompleteP": {"parametrization": "completep"},
    "CompleteP, causal": {"parametrization": "completep", "causal": True},
    "ε as large as the stream": {"norm_epsilon": 1.0, "qk_norm": True},
    "ε as large as the stream, post": {
        "norm_epsilon": 0.5,
        "norm_placement": "post",
        "norm": "rms",
    },
    "ε as large as the stream, causal": {"norm_epsilon": 1.0, "qk_norm": True, "causal": True},
}
NORMS_WITHIN = 0.25
"""Of squares: gradients by W_Q and W_K of attention with norms within were up to .24 ± .05 below
the measured."""


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design(name: str) -> None:
    within = name in ("HybridNorm, causal", "HybridNorm*, causal")
    holds_everywhere(DESIGNS[name], {"parameter_gradient": NORMS_WITHIN} if within else None)
