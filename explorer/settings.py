"""`Settings`: every choice of an experiment, a field each, with its bounds, its options and its
words.

`Config` adds the rules between fields. What follows from the choices is `design.Design`.
"""

from __future__ import annotations

from explorer.choices import Choices
from explorer.fields import setting
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.attention import (
    ATTENTION_GATES,
    ATTENTIONS,
    DIVISORS,
    INHERITANCES,
    NORMALIZED,
    SINKS,
)
from explorer.schemes.data import INPUTS, LOSSES, POSITIONS, READOUTS
from explorer.schemes.distribution import DISTRIBUTIONS, LAYER_WEIGHTS
from explorer.schemes.mlp import MLPS
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.schemes.placement import FINAL_NORMS, NORMS, PLACEMENTS
from explorer.schemes.residual import RESIDUALS, STREAMS
from explorer.schemes.scale import BIASES, SCALE_RULES


class Settings(Choices):
    """The choices of one experiment, each valid by itself."""

    # --- size -------------------------------------------------------------------------------------
    n_layers: int = setting(
        12,
        "Depth",
        "Size",
        "Layers; one layer is an attention sublayer and an MLP sublayer.",
        1,
        1024,
        symbol="N",
        unit="layers",
        log=True,
        pinned=True,
        usual="12–126: GPT-2 small to Llama 3 405B",
    )
    d_model: int = setting(
        256,
        "Width",
        "Size",
        "Width of the residual stream.",
        8,
        2048,
        symbol="d_model",
        unit="coordinates",
        log=True,
        pinned=True,
        usual="768–2048: GPT-2 small to Llama 3.2 1B; 16384 in Llama 3 405B",
    )
    n_heads: int = setting(
        4,
        "Heads",
        "Size",
        "Attention heads; each has the width divided by their number.",
        1,
        64,
        symbol="H",
        unit="heads",
        log=True,
        usual="12–64: GPT-2 small to Llama 3 70B",
    )
    mlp_ratio: float = setting(
        4.0,
        "MLP ratio",
        "Size",
        "Width of the MLP's hidden layer as a multiple of the "
        "stream's, rounded to the nearest whole number (Llama 3: 3.5).",
        0.25,
        16,
        symbol="d_mlp / d_model",
        unit="×",
        step=0.25,
        usual="2.5–4: gated MLPs to GPT-2",
    )
    n_ctx: int = setting(
        64,
        "Sequence length",
        "Size",
        "Tokens in a sequence.",
        2,
        1024,
        symbol="n",
        unit="tokens",
        log=True,
        usual="512–1024: BERT and GPT-2; to 8192 in Llama 3's training",
    )
    batch_size: int = setting(
        2,
        "Batch size",
        "Size",
        "Sequences measured together.",
        1,
        256,
        symbol="B",
        unit="sequences",
        log=True,
        advanced=True,
        usual="1–8: more only narrows the bands",
    )

    # --- initialization ---------------------------------------------------------------------------
    init_variance: float = setting(
        1.0,
        "Init variance",
        "Initialization",
        "Factor on the scale rule's variance, for every matrix of the layers.",
        1e-3,
        1e3,
        symbol="σ²",
        unit="× rule",
        log=True,
        pinned=True,
        usual="1: as the scale rule has it",
    )
    attention_variance: float = setting(
        1.0,
        "Attention variance",
        "Initialization",
        "One more factor on the variance of the matrices of attention.",
        1e-3,
        1e3,
        symbol="σ²_A",
        unit="× σ²",
        log=True,
        advanced=True,
        usual="1: as the MLP",
    )
    mlp_variance: float = setting(
        1.0,
        "MLP variance",
        "Initialization",
        "One more factor on the variance of the matrices of the MLP.",
        1e-3,
        1e3,
        symbol="σ²_M",
        unit="× σ²",
        log=True,
        advanced=True,
        usual="1: as attention",
    )
    bias_variance: float = setting(
        0.0,
        "Bias variance",
        "Initialization",
        "Normal biases have this variance over the fan_in of their matrix; 0: none; as torch's nn.Linear: 1/3.",
        0,
        1e4,
        symbol="fan_in σ²_b",
        unit="/ fan_in",
        advanced=True,
        uses=("biases",),
        usual="0: most models; 0.333 is torch's nn.Linear",
    )
    biases: str = setting(
        "mlp",
        "Biases of",
        "Initialization",
        "Matrices whose products have biases.",
        options=BIASES,
        advanced=True,
        usual="mlp: torch's encoder layer at its start",
    )
    scale_rule: str = setting(
        "lecun",
        "Scale rule",
        "Initialization",
        "Variance of the entries of a weight matrix, from its shape.",
        symbol="Var W",
        options=SCALE_RULES,
        usual="bert, gpt2: most language models draw N(0, 0.02²)",
    )
    distribution: str = setting(
        "normal",
        "Distribution",
        "Initialization",
        "Shape of the weights' distribution; its variance is the scale rule's.",
        options=DISTRIBUTIONS,
        advanced=True,
        usual="normal: most language models",
    )
    layer_weights: str = setting(
        "independent",
        "Weights of the layers",
        "Initialization",
        "Whether each layer is drawn anew, starts as a copy of an earlier one, or is it.",
        options=LAYER_WEIGHTS,
        advanced=True,
        usual="independent: all but ALBERT and copied encoders",
    )
    n_loops: int = setting(
        2,
        "Loops",
        "Initialization",
        "Passes through the same N / R layers.",
        1,
        1024,
        symbol="R",
        unit="passes",
        log=True,
        advanced=True,
        usual="2–8: looped language models",
    )
    parametrization: str = setting(
        "standard",
        "Parametrization",
        "Initialization",
        "Whether σ is in the stored weight or in the forward pass, and how readout and branches scale with the size.",
        options=PARAMETRIZATIONS,
        usual="standard: most published models",
    )
    base_depth: int = setting(
        2,
        "Base depth",
        "Initialization",
        "Depth at which CompleteP and μP are the same; branches × N₀ / N.",
        1,
        1024,
        symbol="N₀",
        unit="layers",
        log=True,
        usual="2: CompleteP's paper",
    )
    mlp: str = setting(
        "plain",
        "MLP",
        "Initialization",
        "Whether the activation's output is passed on, or multiplies a second product of the input.",
        options=MLPS,
        usual="gated: Llama and what followed; plain: GPT-2, BERT",
    )
    activation: str = setting(
        "relu",
        "Activation",
        "Initialization",
        "Nonlinearity of the MLP.",
        symbol="φ",
        options=ACTIVATIONS,
        usual="silu, gelu: Llama, GPT-2 and BERT",
    )
    activation_rescaled: bool = setting(
        True,
        "Unit-moment activation",
        "Initialization",
        "Divides the activation by √E φ(z)², z ~ N(0, 1), so that it keeps a unit second moment.",
        symbol="φ / √E φ²",
        advanced=True,
        usual="off: published models; on keeps q = 1 at the scale rule",
    )

    # --- normalization ----------------------------------------------------------------------------
    norm_placement: str = setting(
        "pre",
        "Norm placement",
        "Normalization",
        "Position of the norms: none, before or after each branch, both, or after each sum.",
        pinned=True,
        options=PLACEMENTS,
        usual="pre: most models since GPT-2; post: BERT",
    )
    final_norm: str = setting(
        "design",
        "Final norm",
        "Normalization",
        "Whether the stream is normalized once more after the last layer.",
        options=FINAL_NORMS,
        advanced=True,
        usual="design: as each paper has it",
    )
    norm: str = setting(
        "layer",
        "Norm",
        "Normalization",
        "Divisor of the norm, and whether it subtracts the mean; or a function in its place.",
        options=NORMS,
        usual="rms: Llama and what followed; layer: GPT-2, BERT",
    )
    norm_epsilon: float = setting(
        1e-5,
        "Norm ε",
        "Normalization",
        "Added to what a norm divides by, before the root.",
        1e-12,
        1.0,
        symbol="ε",
        log=True,
        advanced=True,
        usual="1e-6–1e-5: Llama, Gemma, GPT-2; BERT 1e-12",
    )
    norm_alpha: float = setting(
        0.5,
        "Norm α",
        "Normalization",
        "Factor on a coordinate, before the function that stands in a norm's place.",
        0.01,
        4,
        symbol="α",
        log=True,
        usual="0.5: Dynamic Tanh and Derf at their start",
    )

    # --- residual ---------------------------------------------------------------------------------
    alpha: float = setting(
        1.0,
        "Residual α",
        "Residual",
        "Multiplies each branch, x + α F(x), or with a scaled skip the stream, α x + F(x).",
        0,
        4,
        symbol="α",
        pinned=True,
        usual="1: most models; less with depth where there is no norm",
    )
    residual: str = setting(
        "constant",
        "Residual",
        "Residual",
        "How the branch is added to the stream; 2N branches in N layers.",
        options=RESIDUALS,
        usual="constant: most models",
    )

    stream: str = setting(
        "one",
        "Stream",
        "Residual",
        "What a branch reads of what came before it, and where its output goes. Shown is the mean of "
        "several streams, or a mix of outputs times their number.",
        options=STREAMS,
        usual="one: most models; parallel: GPT-J, PaLM",
    )
    n_streams: int = setting(
        4,
        "Streams",
        "Residual",
        "Residual streams that are mixed.",
        2,
        16,
        symbol="n",
        unit="streams",
        usual="4: hyper-connections, mHC",
    )

    # --- attention --------------------------------------------------------------------------------
    attention: str = setting(
        "softmax",
        "Attention",
        "Attention",
        "Whether layers have an attention sublayer.",
        options=ATTENTIONS,
        advanced=True,
        usual="softmax: every Transformer here",
    )
    n_kv_heads: int = setting(
        0,
        "Key-value heads",
        "Attention",
        "Heads of keys and values, shared by equal groups of heads (Ainslie et al. 2023); 1: one "
        "for all (Shazeer 2019); 0: as many as heads.",
        0,
        64,
        symbol="H_kv",
        unit="heads",
        log=True,
        usual="8: Llama 3; 1: PaLM; 0: GPT-2",
    )
    head_size: int = setting(
        0,
        "Head width",
        "Attention",
        "Coordinates of a head; 0: the width divided by the number of heads.",
        0,
        256,
        symbol="d_head",
        unit="coordinates",
        log=True,
        advanced=True,
        usual="64–256: GPT-2 to Gemma; 0 gives the width over the heads",
    )
    attention_scale: str = setting(
        "sqrt_d",
        "Divide by √d",
        "Attention",
        "Divisor of the attention logits.",
        symbol="√d_head",
        pinned=True,
        options=DIVISORS,
        usual="sqrt_d: nearly all; none: T5; d: μP",
    )
    ssmax_scale: float = setting(
        0.43,
        "SSMax s",
        "Attention",
        "Factor on the logits beside ln n; .43 is what the paper's figure 1 shows.",
        0.01,
        10,
        symbol="s",
        log=True,
        usual="0.43: the paper's figure 1",
    )
    residual_attention: str = setting(
        "none",
        "Residual attention",
        "Attention",
        "Logits, or queries and keys, added up over the layers.",
        options=INHERITANCES,
        usual="none: all but RealFormer",
    )
    qk_norm: bool = setting(
        False,
        "QK-norm",
        "Attention",
        "Normalizes each head's queries and keys before their product (Henry et al. 2020).",
        uses=("norm", "qk_norm_over", "qk_gain"),
        usual="off: Llama, GPT-2; on: Qwen 3, Gemma 3, OLMo 2",
    )
    qk_norm_over: str = setting(
        "head",
        "QK-norm over",
        "Attention",
        "Coordinates that are normalized together.",
        options=NORMALIZED,
        usual="head: Qwen 3, Gemma 3; all: OLMo 2",
    )
    qk_gain: float = setting(
        1.0,
        "QK-norm's gain",
        "Attention",
        "Factor on the product of normalized queries and keys: the product of their learned gains "
        "where each has one.",
        0.01,
        100,
        symbol="g",
        log=True,
        usual="1: learned gains at their start",
    )
    logit_cap: float = setting(
        0.0,
        "Logit soft-cap",
        "Attention",
        "Logits pass through c·tanh(logit / c) and stay within ±c (Gemma 2: 50); 0: no cap.",
        0,
        100,
        symbol="c",
        advanced=True,
        usual="0: most models; 50 is Gemma 2's",
    )
    sink: str = setting(
        "none",
        "Attention sink",
        "Attention",
        "One more logit in every row's softmax, of a key without a value: its weight leaves the row.",
        options=SINKS,
        advanced=True,
        usual="none: most models; learned: gpt-oss",
    )
    attention_gate: str = setting(
        "none",
        "Output gate",
        "Attention",
        "Sigmoid gates on the heads' output, computed from what attention reads.",
        symbol="σ(W_G x)",
        options=ATTENTION_GATES,
        advanced=True,
        usual="none: most models; coordinate: Qwen3-Next",
    )
    causal: bool = setting(
        False,
        "Causal mask",
        "Attention",
        "A token attends to itself and to earlier tokens only.",
        usual="on: language models; off: encoders as BERT",
    )
    value_residual: bool = setting(
        False,
        "Value residual",
        "Attention",
        "From the second layer on values are ½ (V_1 + V_l) (ResFormer: Zhou et al. 2024).",
        advanced=True,
        usual="off: all but ResFormer",
    )
    position: str = setting(
        "none",
        "Positions",
        "Attention",
        "How tokens are told apart by their place.",
        options=POSITIONS,
        usual="rotary: Llama and what followed; learned: GPT-2, BERT",
    )
    rope_base: float = setting(
        1e4,
        "Rotary base",
        "Attention",
        "Pair i of a head's coordinates turns by base^(−2i/d_head) from token to token.",
        1,
        1e8,
        symbol="θ",
        log=True,
        usual="1e4–1e6: Su et al. to Qwen 3",
    )
    rope_fraction: float = setting(
        1.0,
        "Rotary share",
        "Attention",
        "Part of a head's coordinates that is turned.",
        0,
        1,
        usual="1: Llama; 0.25 is GPT-J's",
    )

    # --- input and loss ---------------------------------------------------------------------------
    input: str = setting(
        "gaussian",
        "Input",
        "Input and loss",
        "Input of the first layer.",
        options=INPUTS,
        usual="gaussian: the theory's; text: as in training",
    )
    sentence: str = setting(
        "the cat sat on the mat",
        "Sentence",
        "Input and loss",
        "Input of the first layer, a token each character, in every sequence of the batch.",
        2,
        32,
    )
    input_second_moment: float = setting(
        1.0,
        "Input second moment",
        "Input and loss",
        "Mean square of the input's coordinates: the variance of the embeddings (GPT-2: two tables of 0.02², 8e-4), "
        "times d where they are multiplied by √d (Gemma).",
        1e-8,
        1e8,
        symbol="q₀",
        log=True,
        advanced=True,
        usual="4e-4–1: embeddings of N(0, 0.02²) to normalized ones",
    )
    input_correlation: float = setting(
        0.5,
        "Input correlation",
        "Input and loss",
        "Overlap of two different input tokens.",
        0,
        1,
        symbol="ρ₀",
        usual="0–0.5: BERT's tokens start near 0.33",
    )
    loss: str = setting(
        "linear",
        "Loss",
        "Input and loss",
        "Scalar that is differentiated; the theory is made for the linear one.",
        options=LOSSES,
        usual="linear: the theory's; next_token: as in training",
    )
    readout: str = setting(
        "separate",
        "Readout",
        "Input and loss",
        "Matrix that makes logits of the output: one of its own, or the embedding.",
        symbol="W_U",
        options=READOUTS,
        advanced=True,
        usual="separate: Llama 3; tied: GPT-2, BERT",
    )
    output_cap: float = setting(
        0.0,
        "Output soft-cap",
        "Input and loss",
        "The readout's logits pass through c·tanh(logit / c) (Gemma 2: 30); 0: no cap.",
        0,
        100,
        symbol="c",
        advanced=True,
        usual="0: most models; 15–30: nanochat, Gemma 2",
    )
    n_seeds: int = setting(
        4,
        "Seeds",
        "Input and loss",
        "Independent draws of weights, input and loss; the band holds all of them.",
        1,
        64,
        unit="draws",
        log=True,
        usual="3–8: enough to see a spread",
    )
    seed: int = setting(
        0,
        "First seed",
        "Input and loss",
        "Seed of the first draw; the others follow it.",
        0,
        2**31 - 1,
        advanced=True,
        usual="0: any does",
    )

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.head_size or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_kv_heads or self.n_heads

    @property
    def d_mlp(self) -> int:
        """Width of the MLP's hidden layer."""
        return round(self.mlp_ratio * self.d_model)
