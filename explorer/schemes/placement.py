"""Norm placements around a branch, and the norms themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from explorer.fields import Option

Part = Literal["input", "values", "last", "output", "skip", "sum"]
"""A signal of a sublayer, in the order of the forward pass: the branch's input, the values that
attention mixes, the input of the branch's last matrix, the branch's output, the stream beside the
branch, and their sum."""


class Site(NamedTuple):
    """A place in a sublayer where a norm may stand; a sublayer has one at most on each signal."""

    part: Part
    attention: str
    """The signal that it normalizes in words, in an attention sublayer; empty where that has no
    such signal."""
    mlp: str
    """The signal in an MLP sublayer, in words."""
    numbers: tuple[str, str] = ("d_model", "d_model")
    """Numbers of the signal for each token, in attention and in the MLP: a key of
    `Design.widths`."""
    by_head: bool = False
    """Each head has a norm of its own, instead of one over all numbers of a token."""


SITES: dict[str, Site] = {
    "input": Site("input", "attention's input", "the MLP's input"),
    "heads": Site("values", "each head's values", "", ("keys", ""), by_head=True),
    "read": Site(
        "last",
        "the input of attention's last matrix",
        "the input of the MLP's last matrix",
        ("heads", "d_mlp"),
    ),
    "output": Site("output", "attention's output", "the MLP's output"),
    "sum": Site("sum", "the sum after attention", "the sum after the MLP"),
}
"""The sites by name, in the order of the forward pass. With `heads`, queries and keys are
normalized, too."""


class Placement(NamedTuple):
    """Norms around `skip · x + branch · F(x)`, one sublayer."""

    norms: frozenset[str] = frozenset()
    """Names of `SITES`."""
    scale: float = 1.0
    """Factor on the norm of the branch's input."""
    skip: float = 1.0
    """Factor on the stream, on top of the residual rule's."""
    branch: float = 1.0
    """Factor on the branch, on top of the residual rule's."""
    reads: float = 1.0
    """The branch's input before any norm over the stream that is shown, where streams or outputs
    are mixed."""

    def has(self, *parts: Part) -> bool:
        """Whether one of these signals is normalized."""
        return _stands(self.norms, parts)

    @property
    def within(self) -> frozenset[str]:
        """Norms between the branch's matrices."""
        return frozenset(name for name in self.norms if SITES[name].part in ("values", "last"))


@lru_cache(maxsize=256)
def _stands(norms: frozenset[str], parts: tuple[Part, ...]) -> bool:
    """Whether any of the norms, given by name, stands on one of these signals; kept, for it is
    asked of every sublayer."""
    return any(SITES[name].part in parts for name in norms)


def normed(*names: str, skip: float = 1.0, branch: float = 1.0) -> Placement:
    """A placement of norms at these sites, with factors on stream and branch."""
    return Placement(frozenset(names), skip=skip, branch=branch)


@dataclass(frozen=True, kw_only=True)
class PlacementRule(Option):
    """The placement in a sublayer, and whether the design has a norm after the last layer."""

    sublayer: Callable[[int, int], Placement]
    """From the sublayer's number, 0 … 2N − 1 with attention at the even ones, and from N."""
    final: bool
    uses: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", ("norm",) if self.normalizes else ())

    @property
    def normalizes(self) -> bool:
        """Whether any sublayer has a norm; eight layers show all that a rule does."""
        return any(self.sublayer(index, 8).norms for index in range(16))


# The functions that follow are of a sublayer's number, 0 … 2N − 1, and of N: see `PlacementRule`.


def _everywhere(place: Placement) -> Callable[[int, int], Placement]:
    """A rule by which all sublayers have one placement."""
    return lambda index, n_layers: place


def _keel(index: int, n_layers: int) -> Placement:
    """Keel's placement: the stream has the factor 2N after the first layer."""
    if index == 0:
        return PRE
    return normed("input", "sum", skip=1.0 if index == 1 else 2.0 * n_layers)


def _by_branch(attention: Placement, mlp: Placement) -> Callable[[int, int], Placement]:
    """A rule by which attention has one placement and the MLP another."""
    return lambda index, n_layers: mlp if index % 2 else attention


def _hybrid_star(index: int, n_layers: int) -> Placement:
    """HybridNorm*'s placement: the first layer has norms on its branches' inputs."""
    if index == 0:
        return normed("input", "heads")
    return PRE if index == 1 else HYBRID(index, n_layers)


PRE, POST, PERI = normed("input"), normed("sum"), normed("input", "output")
HYBRID = _by_branch(normed("heads", "sum"), Placement())
STEP_SIZE = 0.05
"""nGPT's step size at initialization."""
POST_SHARE = 0.25
"""Share of Mix-LN's layers that are Post-LN, from the input; the paper's best at every size it
tried."""

PLACEMENTS: dict[str, PlacementRule] = {
    "none": PlacementRule(
        "x + F(x)",
        "He et al. 2015, without their norms",
        sublayer=_everywhere(Placement()),
        final=False,
    ),
    "pre": PlacementRule(
        "x + F(N(x))", "Pre-LN: Xiong et al. 2020, figure 1b", sublayer=_everywhere(PRE), final=True
    ),
    "post": PlacementRule(
        "N(x + F(x))",
        "Post-LN: Vaswani et al. 2017, section 3.1",
        sublayer=_everywhere(POST),
        final=False,
    ),
    "peri": PlacementRule(
        "x + N(F(N(x)))",
        "Sandwich-LN: Ding et al. 2021; Peri-LN: Kim et al. 2025",
        sublayer=_everywhere(PERI),
        final=True,
    ),
    "peri_heads": PlacementRule(
        "x + N(F(N(x))) with q, k and v normalized by head",
        "Gemma 4: Google DeepMind 2026",
        sublayer=_by_branch(normed("input", "heads", "output"), PERI),
        final=True,
    ),
    "branch_output": PlacementRule(
        "x + N(F(x))",
        "Swin v2: Liu et al. 2022; OLMo 2 2025, section 3.2",
        sublayer=_everywhere(normed("output")),
        final=True,
    ),
    "scaled_pre": PlacementRule(
        "x + F(N(x) / √l) in layer l",
        "LayerNorm scaling: Sun et al. 2025, eq. 4",
        sublayer=lambda index, n_layers: PRE._replace(scale=(index // 2 + 1) ** -0.5),
        final=True,
    ),
    "mix": PlacementRule(
        "post in the first quarter of the layers, then pre",
        "Mix-LN: Li et al. 2025, eq. 8",
        sublayer=lambda index, n_layers: POST if index // 2 < int(POST_SHARE * n_layers) else PRE,
        final=True,
    ),
    "keel": PlacementRule(
        "N(2N x + F(N(x))); layer 1: x + F(N(x)), N(x + F(N(x)))",
        "Keel: Chen & Wei 2026, eq. 8 and section 3.1",
        sublayer=_keel,
        final=False,
    ),
    "hybrid": PlacementRule(
        "N(x + A(x)) with q, k and v normalized by head, then x + MLP(x)",
        "HybridNorm: Zhuo et al. 2025",
        sublayer=HYBRID,
        final=True,
    ),
    "hybrid_star": PlacementRule(
        "hybrid, but in layer 1 x + F(N(x))",
        "HybridNorm*: Zhuo et al. 2025",
        sublayer=_hybrid_star,
        final=True,
    ),
    "subln": PlacementRule(
        "x + W N(F(N(x))), W the branch's last matrix",
        "SubLN, in Magneto: Wang et al. 2022, section 3",
        sublayer=_everywhere(normed("input", "read")),
        final=True,
    ),
    "normformer": PlacementRule(
        "x + N(A(N(x))), then x + W_out N(F(N(x)))",
        "NormFormer, its gains at 1: Shleifer et al. 2021",
        sublayer=_by_branch(PERI, normed("input", "read")),
        final=True,
    ),
    "ngpt": PlacementRule(
        "N(0.95 x + 0.05 N(F(x)))",
        "nGPT: Loshchilov et al. 2024, table 1",
        sublayer=_everywhere(normed("output", "sum", skip=1 - STEP_SIZE, branch=STEP_SIZE)),
        final=False,
    ),
}


@lru_cache(maxsize=256)
def kinds(sublayer: Callable[[int, int], Placement], n_layers: int) -> frozenset[Placement]:
    """The different placements in a stack, with `scale` and `reads` left at 1: rules between fields
    ask for nothing else.

    Args:
        sublayer: of a `PlacementRule`.
    """
    places = {sublayer(index, n_layers) for index in range(2 * n_layers)}
    return frozenset(place._replace(scale=1.0) for place in places)


@dataclass(frozen=True, kw_only=True)
class FinalNorm(Option):
    """A norm after the last layer."""

    present: Callable[[PlacementRule], bool]


FINAL_NORMS: dict[str, FinalNorm] = {
    "design": FinalNorm(
        "as the placement requires: yes, except for "
        + " and ".join(name for name, rule in PLACEMENTS.items() if not rule.final),
        present=lambda rule: rule.final,
    ),
    "yes": FinalNorm("once more after the last layer", present=lambda rule: True),
    "no": FinalNorm("the last layer's stream is the output", present=lambda rule: False),
}


@dataclass(frozen=True, kw_only=True)
class Norm(Option):
    """Division of each token by its size, or a function of each coordinate in its place."""

    title: str
    short: str
    """Its title in a drawing."""
    centers: bool = False
    """Whether the token's mean is subtracted first."""
    point: str = ""
    """Activation of α x that stands in the norm's place; empty where it divides."""


EPSILON, SLOPE = ("norm_epsilon",), ("norm_alpha",)
NORMS: dict[str, Norm] = {
    "layer": Norm(
        "(x − mean) / std", "Ba et al. 2016", EPSILON, title="LayerNorm", short="LN", centers=True
    ),
    "rms": Norm("x / √(mean x²)", "Zhang & Sennrich 2019", EPSILON, title="RMSNorm", short="RMS"),
    "dyt": Norm(
        "tanh(α x)",
        "Dynamic Tanh: Zhu et al. 2025, section 4",
        SLOPE,
        title="Dynamic Tanh",
        short="DyT",
        point="tanh",
    ),
    "derf": Norm(
        "erf(α x + s), s = 0",
        "Derf: Chen et al. 2025",
        SLOPE,
        title="Derf",
        short="Derf",
        point="erf",
    ),
}
