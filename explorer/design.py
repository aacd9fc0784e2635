"""`Design`: a config resolved. Model, theory, export, limits and twin ask it, and work nothing out
again.

Most of it is one value for the whole stack. `sublayers` has the norms and factors of each of the 2N
sublayers, `matrices` the shape, the variance and the two places of σ of each weight matrix of a
layer."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import NamedTuple

from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.attention import (
    ATTENTION_GATES,
    ATTENTIONS,
    DIVISORS,
    INHERITANCES,
    NORMALIZED,
    SINKS,
    Sink,
)
from explorer.schemes.data import INPUTS, LOSSES, POSITIONS, READOUTS
from explorer.schemes.distribution import LAYER_WEIGHTS
from explorer.schemes.mlp import MLPS
from explorer.schemes.parametrization import BASE_WIDTH, PARAMETRIZATIONS, Power, Quantity
from explorer.schemes.placement import FINAL_NORMS, NORMS, PLACEMENTS, Placement, kinds
from explorer.schemes.residual import LAST, RESIDUALS, STREAMS, Rule, StreamRule
from explorer.schemes.scale import BIASES, SCALE_RULES
from explorer.settings import Settings


class Matrix(NamedTuple):
    """One weight matrix of a layer."""

    fan_in: int
    fan_out: int
    variance: float
    """Variance of the entries that multiply: scale rule × init variances × the residual rule's
    factor²."""
    bias: float
    """Variance of the biases added to its product; 0 where there are none."""
    stored: float
    """Standard deviation of the stored entries; 1 where σ stands in the forward pass."""
    forward: float
    """Factor on the product in the forward pass; 1 where σ is stored."""

    @property
    def gain(self) -> float:
        """Factor on the second moment: the g of the theory's recursions."""
        return self.fan_in * self.variance


class Design:
    """A config resolved: everything that follows from the choices of an experiment.

    Each attribute is worked out when it is first asked for, so that a rule between fields may ask
    one of choices that do not agree."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # --- norms, stream and branches ---------------------------------------------------------------

    @cached_property
    def sublayers(self) -> tuple[Placement, ...]:
        """Norms and factors of each sublayer, `[2N]`, attention at the even ones.

        `skip` and `branch` are those at initialization: the residual rule's, times the norm
        placement's and the parametrization's. Profiled factors on the stream are 1."""
        settings, reads, count = self.settings, self.stream.reads, 2 * self.settings.n_layers
        place = PLACEMENTS[settings.norm_placement].sublayer
        rule, factor = self.rule, self.branch_factor
        every = [place(index, settings.n_layers) for index in range(count)]
        return tuple(
            row._replace(
                skip=rule.skip * row.skip,
                branch=rule.branch * factor * row.branch,
                reads=reads(settings, index),
            )
            for index, row in enumerate(every)
        )

    @cached_property
    def skips(self) -> tuple[float, ...]:
        """Factor on the stream by sublayer, `[2N]`."""
        return tuple(place.skip for place in self.sublayers)

    @cached_property
    def branches(self) -> tuple[float, ...]:
        """Factor on the branch by sublayer, `[2N]`."""
        return tuple(place.branch for place in self.sublayers)

    @property
    def kinds(self) -> frozenset[Placement]:
        """The different placements in the stack, apart from their `scale` and `reads`."""
        return kinds(PLACEMENTS[self.settings.norm_placement].sublayer, self.settings.n_layers)

    @property
    def rule(self) -> Rule:
        """The residual rule's factors on stream, branches and matrices."""
        return RESIDUALS[self.settings.residual].multipliers(self.settings)

    @property
    def adds_to_whole_stream(self) -> bool:
        """Whether nothing weighs the stream before a branch is added."""
        skips = {self.rule.skip, *(place.skip for place in self.kinds)}
        return not self.profiled and skips == {1.0}

    @property
    def profiled(self) -> bool:
        """Whether the factors on the stream are found in a first pass: see
        `residual.profiled_factor`."""
        return RESIDUALS[self.settings.residual].profiled

    @property
    def alpha_shape(self) -> tuple[int, ...] | None:
        """Shape of a layer's learned multiplier, see `ResidualRule.learned`; None where it is not
        learned."""
        shape = RESIDUALS[self.settings.residual].learned
        return None if shape is None else shape(self.settings)

    @property
    def stream(self) -> StreamRule:
        """The row of the residual stream."""
        return STREAMS[self.settings.stream]

    @cached_property
    def mix_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what a layer learns about mixing; the first axis is the branch."""
        rule, branches, n, d = (
            self.stream,
            1 + self.attends,
            self.settings.n_streams,
            self.settings.d_model,
        )
        if rule.mixes == "outputs":
            return {"depth_query": (branches, d)}
        if rule.mixes == "streams":
            inputs = (n, n * d) if rule.constrained else (1, d)
            return {
                "mix": (branches, n, n + 2),
                "mix_scale": (branches, 3),
                "mix_by_token": (branches, inputs[0] * (n + 2), inputs[1]),
            }
        return {}

    @property
    def final_norm(self) -> bool:
        """Whether the stream is normalized once more after the last layer."""
        return FINAL_NORMS[self.settings.final_norm].present(
            PLACEMENTS[self.settings.norm_placement]
        )

    @property
    def point(self) -> str:
        """Activation that stands in the norms' place; empty where they divide."""
        return NORMS[self.settings.norm].point

    @property
    def centers(self) -> bool:
        """Whether the norm subtracts each token's mean."""
        return NORMS[self.settings.norm].centers

    @cached_property
    def widths(self) -> dict[str, int]:
        """Numbers of a token in the signals that a norm may stand on: of the stream, queries, keys
        and hidden units."""
        asked = self.settings
        heads, keys = asked.n_heads * asked.d_head, asked.kv_heads * asked.d_head
        return {"d_model": asked.d_model, "heads": heads, "keys": keys, "d_mlp": asked.d_mlp}

    # --- matrices ---------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """`(fan_in, fan_out)` of each weight matrix of a layer, in the order of the forward
        pass."""
        attention, (d, queries, keys, d_mlp) = {}, self.widths.values()
        if self.attends:
            gate = {"W_G": (d, self.gates)} if self.gates else {}
            attention = {
                "W_Q": (d, queries),
                "W_K": (d, keys),
                "W_V": (d, keys),
                **gate,
                "W_O": (queries, d),
            }
        return {**attention, **dict.fromkeys(self.readers, (d, d_mlp)), "W_out": (d_mlp, d)}

    @cached_property
    def matrices(self) -> dict[str, Matrix]:
        """Every weight matrix of a layer, in the order of the forward pass."""
        settings, mlp = self.settings, (*self.readers, "W_out")
        rule, biased = SCALE_RULES[settings.scale_rule].variance, BIASES[settings.biases]
        matrices = {}
        for name, (fan_in, fan_out) in self.shapes.items():
            by_branch = settings.mlp_variance if name in mlp else settings.attention_variance
            variance = settings.init_variance * by_branch * rule(settings, name, fan_in, fan_out)
            variance *= self.rule.drawn.get(name, 1.0) ** 2
            has_bias = biased.attention or name in (*self.readers, LAST[1])
            sigma = math.sqrt(variance)
            stored, forward = (1.0, sigma) if self.scales_forward else (sigma, 1.0)
            matrices[name] = Matrix(
                fan_in,
                fan_out,
                variance,
                settings.bias_variance / fan_in * has_bias,
                stored,
                forward,
            )
        return matrices

    @property
    def differs_by_layer(self) -> bool:
        """Whether the last matrix of a sublayer is drawn by its layer."""
        return SCALE_RULES[self.settings.scale_rule].last is not None

    @property
    def last(self) -> tuple[float, ...]:
        """Factor on the variance of the last matrix of each sublayer, beside that in `matrices`,
        `[2N]`."""
        factor, count = SCALE_RULES[self.settings.scale_rule].last, 2 * self.settings.n_layers
        return tuple(factor(index // 2 + 1) for index in range(count)) if factor else (1.0,) * count

    def factors_by_layer(self, matrix: str) -> tuple[float, ...]:
        """Factor on the variance of one matrix in each layer, beside that in `matrices`, `[N]`: see
        `last`."""
        return (
            self.last[LAST.index(matrix) :: 2]
            if matrix in LAST
            else (1.0,) * self.settings.n_layers
        )

    @property
    def biases(self) -> dict[str, float]:
        """Variance of the biases, by matrix; only of matrices that have some."""
        return {name: matrix.bias for name, matrix in self.matrices.items() if matrix.bias}

    @property
    def scales_forward(self) -> bool:
        """Whether σ is in the forward pass instead of in the stored weights."""
        return PARAMETRIZATIONS[self.settings.parametrization].scales_forward

    def factors(self, quantity: Quantity) -> dict[str, float]:
        """Factor on a quantity of training, such as Adam's learning rate, for each kind of
        parameter.

        The kinds: input (embeddings), hidden (matrices of the layers), vector (what else the layers
        learn), output (W_U). All are 1 except under μP, where the best learning rate of one width
        is then the best of every width, and its kin."""
        rows = PARAMETRIZATIONS[self.settings.parametrization].powers
        return {kind: self._raised(getattr(row, quantity)) for kind, row in rows.items()}

    @property
    def branch_factor(self) -> float:
        """Factor of the parametrization on every branch."""
        return self._raised(PARAMETRIZATIONS[self.settings.parametrization].branch)

    def _raised(self, power: Power) -> float:
        settings = self.settings
        width, depth = settings.d_model / BASE_WIDTH, settings.n_layers / settings.base_depth
        return float(width**power.width * depth**power.depth)

    @property
    def unique(self) -> int:
        """Number of the first layers that are drawn; those after them start as their copies, in the
        same order."""
        return LAYER_WEIGHTS[self.settings.layer_weights].unique(self.settings)

    @property
    def copied(self) -> bool:
        """Whether layers start with the weights of others."""
        return self.unique < self.settings.n_layers

    @property
    def shared(self) -> bool:
        """Whether layers that start alike are one set of parameters."""
        return LAYER_WEIGHTS[self.settings.layer_weights].shared

    # --- MLP --------------------------------------------------------------------------------------

    @property
    def readers(self) -> tuple[str, ...]:
        """Matrices that read the MLP's input, the activation's first."""
        return MLPS[self.settings.mlp].readers

    @property
    def degree(self) -> int:
        """Power of its input with which the MLP's output grows, about: the factors' degrees add."""
        return ACTIVATIONS[self.settings.activation].degree + len(self.readers) - 1

    # --- attention --------------------------------------------------------------------------------

    @property
    def attends(self) -> bool:
        """Whether the layers have an attention sublayer."""
        return ATTENTIONS[self.settings.attention].present

    @property
    def divisor(self) -> float:
        """Divisor of the attention logits."""
        return DIVISORS[self.settings.attention_scale].of(self.settings.d_head)

    @cached_property
    def row_factors(self) -> tuple[float, ...]:
        """Factor on the logits of each row of a sequence; a single one where each row sees all
        keys."""
        factor, n = DIVISORS[self.settings.attention_scale].row, self.settings.n_ctx
        return tuple(
            factor(self.settings, t) for t in (range(1, n + 1) if self.settings.causal else (n,))
        )

    @property
    def inherits(self) -> str:
        """Sum over the layers that the logits inherit: see `Inheritance.adds`."""
        return INHERITANCES[self.settings.residual_attention].adds

    @property
    def normalizes_heads(self) -> bool:
        """Whether each head's queries and keys are normalized, by a choice or by the placement."""
        return self.settings.qk_norm or any(place.has("values") for place in self.kinds)

    @property
    def joins(self) -> bool:
        """Whether the QK-norm is over all heads at once, of which there are several."""
        settings = self.settings
        return settings.qk_norm and NORMALIZED[settings.qk_norm_over].joins and settings.n_heads > 1

    @property
    def sink(self) -> Sink:
        """The row of the attention sink."""
        return SINKS[self.settings.sink if self.attends else "none"]

    @property
    def gates(self) -> int:
        """Number of gates on attention's output; 0 where there are none."""
        per_head = ATTENTION_GATES[self.settings.attention_gate].per_head
        return self.settings.n_heads * per_head(self.settings.d_head) if self.attends else 0

    # --- positions, input and loss ----------------------------------------------------------------

    @property
    def rotates(self) -> bool:
        """Whether queries and keys are turned by their positions."""
        return POSITIONS[self.settings.position].rotates

    @property
    def rotated(self) -> int:
        """Coordinates of a head that are turned, its first ones, if any are."""
        return math.floor(self.settings.rope_fraction * self.settings.d_head + 1e-9)

    @cached_property
    def angles(self) -> tuple[float, ...]:
        """Angle by which each pair of a head's coordinates is turned from one position to the
        next."""
        count = self.rotated if self.rotates else 0
        return tuple(self.settings.rope_base ** (-pair / count) for pair in range(0, count, 2))

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """How fast each head's logits fall with distance (ALiBi); none where they do not.

        Of a number of heads that is no power of two, those of the next lower one, and then every
        other of twice as many."""
        if not POSITIONS[self.settings.position].biases:
            return ()
        heads = self.settings.n_heads
        lower = 1 << (heads.bit_length() - 1)
        steps = [*range(2, 2 * lower + 1, 2), *range(1, 2 * lower, 2)]
        return tuple(2.0 ** (-4 * step / lower) for step in steps[:heads])

    @property
    def embeds_positions(self) -> bool:
        """Whether a vector for each position is added to the input."""
        row = POSITIONS[self.settings.position]
        return row.embeds_text if self.reads_text else row.embeds_vectors

    @property
    def token_part(self) -> float:
        """Part of an input token's second moment that is not its position's."""
        return 0.5 if self.embeds_positions else 1.0

    @property
    def reads_text(self) -> bool:
        """Whether the input is text."""
        return INPUTS[self.settings.input].is_text

    @property
    def sentence(self) -> str:
        """The sentence that is the input; empty where tokens are drawn."""
        return INPUTS[self.settings.input].sentence(self.settings)

    @property
    def predicts_text(self) -> bool:
        """Whether the loss asks for the next character."""
        return LOSSES[self.settings.loss].predicts

    @property
    def tied(self) -> bool:
        """Whether the readout of the loss is the embedding."""
        return self.predicts_text and READOUTS[self.settings.readout].tied

    @property
    def readout_variance(self) -> float:
        """Variance of the entries of W_U: that of its row, and once more by the width under μP."""
        character = self.settings.input_second_moment * self.token_part
        row = READOUTS[self.settings.readout]
        return self.factors("variance")["output"] * row.variance(self.settings.d_model, character)


@lru_cache(maxsize=256)
def resolve(settings: Settings) -> Design:
    """The design of a config; the last ones are kept."""
    return Design(settings)
