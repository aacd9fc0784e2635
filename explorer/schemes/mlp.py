"""MLPs: the matrices that read the branch's input, and whether one factor gates another."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.fields import Option


@dataclass(frozen=True, kw_only=True)
class MLPKind(Option):
    """The MLP sublayer of every layer."""

    gated: bool = False
    """The activation is of W_gate x, and multiplies W_in x; else it is of W_in x."""
    shift: float = 0.0
    """Added to W_in x before it is multiplied."""

    @property
    def readers(self) -> tuple[str, ...]:
        """Matrices that read the branch's input, the activation's first."""
        return ("W_gate", "W_in") if self.gated else ("W_in",)


MLPS: dict[str, MLPKind] = {
    "plain": MLPKind("W_out φ(W_in x)", "Vaswani et al. 2017"),
    "gated": MLPKind(
        "W_out (φ(W_gate x) ⊙ W_in x)",
        "Shazeer 2020: SwiGLU with silu, GEGLU with gelu, ReGLU with relu, GLU with sigmoid, bilinear with identity",
        gated=True,
    ),
    "gated_plus_one": MLPKind(
        "W_out (φ(W_gate x) ⊙ (W_in x + 1))",
        "gpt-oss: OpenAI 2025, with quick, and a clamp at 7 left out here",
        gated=True,
        shift=1.0,
    ),
}
