"""`Config`: every choice that defines one experiment, frozen, validated and hashable; and `preset`, by a name."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from explorer.choices import Choices, ConfigError
from explorer.display import must_be
from explorer.fields import About
from explorer.limits import Sizes, excess, sizes
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.attention import ATTENTIONS, DIVISORS, INHERITANCES, attends, inherits
from explorer.schemes.data import INPUTS, LOSSES, predicts_text, reads_text
from explorer.schemes.distribution import DISTRIBUTIONS
from explorer.schemes.placement import FINAL_NORMS, NORMS, PLACEMENTS, has_final_norm, placements
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS, multipliers
from explorer.schemes.scale import PARAMETRIZATIONS, SCALE_RULES, scales_forward

__all__ = ["Config", "ConfigError", "preset"]

LEAST_CAP = 0.01
"""The least soft cap: below it all logits are the same."""


def heads_of(width: int, most: int) -> int:
    """The largest number of heads, up to `most`, that divides a width."""
    return next(heads for heads in range(min(most, width), 0, -1) if width % heads == 0)


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
        4, description="Attention heads; each has the width divided by their number."
    )
    mlp_ratio: Annotated[int, Field(ge=1, le=16), About("MLP ratio", "Size", "d_mlp / d_model", "×")] = Field(
        4, description="Width of the MLP's hidden layer as a multiple of the stream's."
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
    ] = Field(1.0, description="Factor on the scale rule's variance, for every matrix of the layers.")
    scale_rule: Annotated[str, About("Scale rule", "Initialization", "Var W", options=SCALE_RULES)] = Field(
        "lecun", description="Variance of the entries of a weight matrix, from its shape."
    )
    distribution: Annotated[str, About("Distribution", "Initialization", options=DISTRIBUTIONS)] = Field(
        "normal", description="Shape of the weights' distribution; its variance is the scale rule's."
    )
    parametrization: Annotated[str, About("Parametrization", "Initialization", options=PARAMETRIZATIONS)] = Field(
        "standard",
        description="Whether σ is in the stored weight or in the forward pass, and how the readout scales with width.",
    )
    activation: Annotated[str, About("Activation", "Initialization", "φ", options=ACTIVATIONS)] = Field(
        "relu", description="Nonlinearity of the MLP."
    )
    activation_rescaled: Annotated[bool, About("Unit-moment activation", "Initialization", "φ / √E φ²")] = Field(
        True, description="Divides the activation by √E φ(z)², z ~ N(0, 1), so that it keeps a unit second moment."
    )

    # --- normalization --------------------------------------------------------------------------------------
    norm_placement: Annotated[str, About("Norm placement", "Normalization", pinned=True, options=PLACEMENTS)] = Field(
        "pre", description="Position of the norms: none, before or after each branch, both, or after each sum."
    )
    final_norm: Annotated[str, About("Final norm", "Normalization", options=FINAL_NORMS)] = Field(
        "design", description="Whether the stream is normalized once more after the last layer."
    )
    norm: Annotated[str, About("Norm", "Normalization", options=NORMS)] = Field(
        "layer", description="Divisor of the norm, and whether it subtracts the mean."
    )

    # --- residual -------------------------------------------------------------------------------------------
    alpha: Annotated[float, Field(ge=0, le=4), About("Residual α", "Residual", "α", pinned=True)] = Field(
        1.0, description="Multiplies each branch, x + α F(x), or with a scaled skip the stream, α x + F(x)."
    )
    residual: Annotated[str, About("Residual", "Residual", options=RESIDUALS)] = Field(
        "constant", description="How the branch is added to the stream; 2N branches in N layers."
    )

    # --- attention ------------------------------------------------------------------------------------------
    attention: Annotated[str, About("Attention", "Attention", options=ATTENTIONS)] = Field(
        "softmax", description="Whether layers have an attention sublayer."
    )
    attention_scale: Annotated[
        str, About("Divide by √d", "Attention", "√d_head", pinned=True, options=DIVISORS)
    ] = Field("sqrt_d", description="Divisor of the attention logits.")
    residual_attention: Annotated[str, About("Residual attention", "Attention", options=INHERITANCES)] = Field(
        "none", description="Logits, or queries and keys, added up over the layers."
    )
    qk_norm: Annotated[bool, About("QK-norm", "Attention")] = Field(
        False, description="Normalizes each head's queries and keys before their product (Henry et al. 2020)."
    )
    logit_cap: Annotated[float, Field(ge=0, le=100), About("Logit soft-cap", "Attention", "c")] = Field(
        0.0, description="Logits pass through c·tanh(logit / c) and stay within ±c (Gemma 2: 50); 0: no cap."
    )
    causal: Annotated[bool, About("Causal mask", "Attention")] = Field(
        False, description="A token attends to itself and to earlier tokens only."
    )

    # --- input and loss -------------------------------------------------------------------------------------
    input: Annotated[str, About("Input", "Input and loss", options=INPUTS)] = Field(
        "gaussian", description="Input of the first layer; always of unit second moment."
    )
    input_correlation: Annotated[float, Field(ge=0, le=1), About("Input correlation", "Input and loss", "ρ₀")] = Field(
        0.5, description="Overlap of two different input tokens."
    )
    loss: Annotated[str, About("Loss", "Input and loss", options=LOSSES)] = Field(
        "linear", description="Scalar that is differentiated; the theory is made for the linear one."
    )
    n_seeds: Annotated[int, Field(ge=1, le=64), About("Seeds", "Input and loss", unit="draws", log=True)] = Field(
        4, description="Independent draws of weights, input and loss; their spread is the band."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("First seed", "Input and loss")] = Field(
        0, description="Seed of the first draw; the others follow it."
    )

    @model_validator(mode="after")
    def _fields_agree(self) -> Config:
        if self.d_model % self.n_heads:
            raise self.refusal(
                f"{{d_model}} must be divisible by {{n_heads}}; got {self.d_model} and {self.n_heads}",
                n_heads=heads_of(self.d_model, self.n_heads),
                d_model=max(self.n_heads, self.d_model - self.d_model % self.n_heads),
            )
        if predicts_text(self) and not reads_text(self):
            raise self.refusal("{loss=} needs {input=text}; got {input=}", input="text", loss="linear")
        if 0 < self.logit_cap < LEAST_CAP:
            raise self.refusal(f"{{logit_cap}} must be 0 or at least {LEAST_CAP}; got {self.logit_cap:g}")
        if inherits(self) and not attends(self):
            raise self.refusal("{residual_attention} must be none where {attention=}; got {residual_attention=}",
                               residual_attention="none", attention="softmax")
        if has_final_norm(self) and not PLACEMENTS[self.norm_placement].normalizes:
            raise self.refusal(
                f"{{final_norm=}} needs a {{norm_placement}} other than {self.norm_placement}; got {{norm_placement=}}",
                final_norm="design", norm_placement="pre",
            )
        self._agree_with_residual()
        if sentence := excess(self):
            raise self.refusal(sentence)
        return self

    def _agree_with_residual(self) -> None:
        starts_as_zero = 0 in multipliers(self).drawn.values()
        if starts_as_zero and scales_forward(self):
            raise self.refusal(
                "{residual=} needs {parametrization=standard} or mup, because a weight that is multiplied by 0 "
                "never learns; got {parametrization=}", parametrization="standard", residual="constant",
            )
        if starts_as_zero and any(place.on_output for place in placements(self)):
            raise self.refusal(
                "{residual=} needs a {norm_placement} with no norm after the branch, which starts as zero; got "
                "{norm_placement=}", norm_placement="pre", residual="constant",
            )
        if RESIDUALS[self.residual].shrinks_last and SCALE_RULES[self.scale_rule].shrinks_last:
            raise self.refusal(
                f"{{residual=}} needs another {{scale_rule}} than {self.scale_rule}, which shrinks W_O and W_out "
                "already; got {scale_rule=}", scale_rule="lecun", residual="constant",
            )

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.n_heads

    @property
    def d_mlp(self) -> int:
        """Width of the MLP's hidden layer."""
        return self.mlp_ratio * self.d_model

    @property
    def sizes(self) -> Sizes:
        """Numbers of weights and bytes."""
        return sizes(self)


def preset(name: str, **choices: Any) -> Config:
    """The config of a named design.

    Args:
        name: a key of `PRESETS`.
        choices: any other fields, such as `n_layers`.
    Raises:
        TypeError: the name is not a str.
        ValueError: there is no such preset.
        ConfigError: the choices are refused.
    """
    if must_be(str, "name", name) not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}")
    return Config(**{**PRESETS[name].changes, **choices})
