"""`Config`: every choice that defines one experiment. Frozen, validated, hashable, and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from explorer.choices import Choices, ConfigError
from explorer.fields import About, Option
from explorer.limits import check_size

__all__ = ["Config", "ConfigError"]

ScaleRule = Literal["lecun", "xavier", "he", "fan_out", "bert", "gpt2", "t5", "torch_default"]
Activation = Literal["relu", "gelu", "silu", "elu", "selu", "tanh", "sigmoid", "identity"]
NormPlacement = Literal["none", "pre", "post", "peri"]
ResidualRule = Literal["absent", "constant", "rezero", "inverse_sqrt_depth", "inverse_depth", "deepnorm"]


class Config(Choices):
    """One experiment on one Transformer: its sizes, its initialization, its design, its input and its loss.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or fields that exclude each other.
    """

    # --- size -----------------------------------------------------------------------------------------------
    n_layers: Annotated[int, Field(ge=1, le=1024), About("Depth", "Size", "N", "layers", log=True, pinned=True)] = (
        Field(12, description="Layers; one layer is an attention sublayer and an MLP sublayer.")
    )
    d_model: Annotated[
        int, Field(ge=8, le=2048), About("Width", "Size", "d_model", "coordinates", log=True, pinned=True)
    ] = Field(256, description="Width of the residual stream.")
    n_heads: Annotated[int, Field(ge=1, le=64), About("Heads", "Size", "H", "heads", log=True)] = Field(
        4, description="Attention heads; each is d_model / n_heads wide."
    )
    mlp_ratio: Annotated[int, Field(ge=1, le=16), About("MLP ratio", "Size", "d_mlp / d_model", "×")] = Field(
        4, description="Width of the MLP's hidden layer as a multiple of d_model."
    )
    n_ctx: Annotated[int, Field(ge=2, le=1024), About("Sequence length", "Size", "n", "tokens", log=True)] = Field(
        64, description="Tokens in a sequence."
    )
    batch_size: Annotated[int, Field(ge=1, le=256), About("Batch size", "Size", "B", "sequences", log=True)] = Field(
        2, description="Sequences measured together."
    )

    # --- initialization -------------------------------------------------------------------------------------
    init_variance: Annotated[
        float, Field(ge=1e-3, le=1e3), About("Init variance", "Initialization", "σ²", "× rule", log=True, pinned=True)
    ] = Field(1.0, description="Multiplies the variance that the scale rule gives to every matrix of the layers.")
    scale_rule: Annotated[
        ScaleRule,
        About(
            "Scale rule",
            "Initialization",
            "Var W",
            options={
                "lecun": Option("1 / fan_in", "LeCun et al. 1998"),
                "xavier": Option("2 / (fan_in + fan_out)", "Glorot & Bengio 2010"),
                "he": Option("2 / fan_in", "He et al. 2015"),
                "fan_out": Option("1 / fan_out", "He et al. 2015, backward form"),
                "bert": Option("0.02², whatever the shape", "BERT: Devlin et al. 2018"),
                "gpt2": Option("0.02²; W_O, W_out: 0.02² / (2N)", "GPT-2: Radford et al. 2019"),
                "t5": Option("1 / fan_in; W_Q: 1 / (d d_head), so no √d divisor", "T5: Raffel et al. 2020"),
                "torch_default": Option("1 / (3 fan_in); Q, K, V: 1 / (2 d)", "torch.nn.TransformerEncoderLayer"),
            },
        ),
    ] = Field("lecun", description="Variance of the entries of a weight matrix, from its shape.")
    distribution: Annotated[
        Literal["normal", "uniform", "truncated_normal"],
        About(
            "Distribution",
            "Initialization",
            options={
                "normal": Option("N(0, σ²)"),
                "uniform": Option("U[−√3σ, √3σ]"),
                "truncated_normal": Option("cut at ±2σ, widened to keep σ²"),
            },
        ),
    ] = Field("normal", description="Shape of the weights' distribution; its variance is the scale rule's.")
    parametrization: Annotated[
        Literal["standard", "ntk", "mup"],
        About(
            "Parametrization",
            "Initialization",
            options={
                "standard": Option("W ~ (0, σ²)"),
                "ntk": Option("W ~ (0, 1), forward × σ", "Jacot et al. 2018"),
                "mup": Option("layers as standard, readout ~ (0, 64 / d²); its own attention is q·k / d_head",
                              "μP: Yang et al. 2022"),
            },
        ),
    ] = Field(
        "standard",
        description="Whether σ is in the stored weight or in the forward pass, and how the readout scales with width.",
    )
    activation: Annotated[
        Activation,
        About(
            "Activation",
            "Initialization",
            "φ",
            options={
                "relu": Option("max(0, x)", "Nair & Hinton 2010"),
                "gelu": Option("x Φ(x)", "Hendrycks & Gimpel 2016"),
                "silu": Option("x / (1 + e⁻ˣ)", "Elfwing et al. 2017"),
                "elu": Option("x, or eˣ − 1 below 0", "Clevert et al. 2015"),
                "selu": Option("λ·elu with α, mean 0 and variance 1", "Klambauer et al. 2017"),
                "tanh": Option("tanh x"),
                "sigmoid": Option("1 / (1 + e⁻ˣ)"),
                "identity": Option("x"),
            },
        ),
    ] = Field("relu", description="Nonlinearity of the MLP.")
    activation_rescaled: Annotated[bool, About("Unit-moment activation", "Initialization", "φ / √E φ²")] = Field(
        True, description="Divides the activation by √E φ(z)², z ~ N(0, 1), so that it keeps a unit second moment."
    )

    # --- normalization --------------------------------------------------------------------------------------
    norm_placement: Annotated[
        NormPlacement,
        About(
            "Norm placement",
            "Normalization",
            pinned=True,
            options={
                "none": Option("x + F(x)"),
                "pre": Option("x + F(N(x))", "Pre-LN: Xiong et al. 2020"),
                "post": Option("N(x + F(x))", "Post-LN: Vaswani et al. 2017"),
                "peri": Option("x + N(F(N(x)))", "Peri-LN: Kim et al. 2025"),
            },
        ),
    ] = Field("pre", description="Where the norm stands: nowhere, before each branch, after each sum, or around it.")
    norm: Annotated[
        Literal["layer", "rms"],
        About(
            "Norm",
            "Normalization",
            options={
                "layer": Option("(x − mean) / std", "Ba et al. 2016"),
                "rms": Option("x / √(mean x²)", "Zhang & Sennrich 2019"),
            },
            needs={"norm_placement": ("pre", "post", "peri")},
        ),
    ] = Field("layer", description="What the norm divides by, and whether it centers.")

    # --- residual -------------------------------------------------------------------------------------------
    alpha: Annotated[
        float, Field(ge=0, le=4), About("Residual α", "Residual", "α", pinned=True, needs={"residual": ("constant",)})
    ] = Field(1.0, description="Multiplies each branch when the residual is constant: x + α F(x).")
    residual: Annotated[
        ResidualRule,
        About(
            "Residual",
            "Residual",
            options={
                "absent": Option("F(x)"),
                "constant": Option("x + α F(x)", "He et al. 2015"),
                "rezero": Option("x + α F(x), α learned from 0", "ReZero: Bachlechner et al. 2020"),
                "inverse_sqrt_depth": Option("x + F(x) / √(2N)", "Taki 2017; GPT-2 2019"),
                "inverse_depth": Option("x + F(x) / (2N)", "Hanin & Rolnick 2018"),
                "deepnorm": Option("(2N)^¼ x + F(x), W_V W_O MLP × (8N)^−¼", "DeepNet: Wang et al. 2022"),
            },
        ),
    ] = Field("constant", description="How the branch is added to the stream; 2N branches in N layers.")

    # --- attention ------------------------------------------------------------------------------------------
    attention_scale: Annotated[
        Literal["sqrt_d", "none", "d"],
        About(
            "Divide by √d",
            "Attention",
            "√d_head",
            pinned=True,
            options={
                "sqrt_d": Option("q·k / √d_head", "Vaswani et al. 2017"),
                "none": Option("q·k"),
                "d": Option("q·k / d_head", "μP: Yang et al. 2022"),
            },
        ),
    ] = Field("sqrt_d", description="What the attention logits are divided by.")
    qk_norm: Annotated[bool, About("QK-norm", "Attention")] = Field(
        False, description="Normalizes each head's queries and keys before their product (Henry et al. 2020)."
    )
    causal: Annotated[bool, About("Causal mask", "Attention")] = Field(
        False, description="A token sees itself and what came before, nothing later."
    )

    # --- input and loss -------------------------------------------------------------------------------------
    input: Annotated[
        Literal["gaussian", "correlated", "text"],
        About(
            "Input",
            "Input and loss",
            options={
                "gaussian": Option("independent N(0, 1) tokens"),
                "correlated": Option("N(0, 1) tokens that overlap by ρ₀"),
                "text": Option("English prose, embedded"),
            },
        ),
    ] = Field("gaussian", description="What enters the first layer; always with unit second moment.")
    input_correlation: Annotated[
        float, Field(ge=0, le=1), About("Input correlation", "Input and loss", "ρ₀", needs={"input": ("correlated",)})
    ] = Field(0.5, description="Overlap of two different input tokens.")
    loss: Annotated[
        Literal["linear", "next_token"],
        About(
            "Loss",
            "Input and loss",
            options={
                "linear": Option("⟨output, random unit direction⟩"),
                "next_token": Option("cross-entropy of the next character"),
            },
        ),
    ] = Field("linear", description="What is differentiated; the theory's loss is linear.")
    n_seeds: Annotated[int, Field(ge=1, le=64), About("Seeds", "Input and loss", unit="draws", log=True)] = Field(
        4, description="Independent draws of weights, input and loss; their spread is the band."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("First seed", "Input and loss")] = Field(
        0, description="Seed of the first draw; the others follow it."
    )

    @model_validator(mode="after")
    def _fields_agree(self) -> Config:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model must be divisible by n_heads; got {self.d_model} and {self.n_heads}")
        if self.loss == "next_token" and self.input != "text":
            raise ValueError(f"loss = next_token needs input = text; got input = {self.input}")
        check_size(self.n_parameters, self.activation_bytes, self.model_dump())
        return self

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.n_heads

    @property
    def d_mlp(self) -> int:
        """Width of the MLP's hidden layer."""
        return self.mlp_ratio * self.d_model

    @property
    def n_parameters(self) -> int:
        """Weights in the layers: four d×d matrices of attention and two d×d_mlp of the MLP in each."""
        return self.n_layers * (4 * self.d_model**2 + 2 * self.d_model * self.d_mlp)

    @property
    def activation_bytes(self) -> int:
        """About what autograd keeps of one forward pass, in bytes: right to a factor 1.6 whatever the design."""
        per_token = 12 * self.d_model + 2 * self.d_mlp + self.n_heads * self.n_ctx
        return 4 * self.n_layers * self.batch_size * self.n_ctx * per_token
