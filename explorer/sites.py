"""The sites of a Transformer at which its signal is measured: a row each.

The model calls its tap with the name of a site, the number of the layer and the tensor. All else
follows from the row: the order of computation, words, the depth on a chart, the recorder's groups,
the layers of a prediction, and the statistics that are measured there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from explorer.translation import Texts

if TYPE_CHECKING:
    from explorer.design import Design

Kind = Literal["stream", "branch", "attention", "readout", "inner"]
"""stream: the residual stream `[batch, token, d_model]`, norms included. branch: the term that a
branch adds to it, before any multiplier of the residual rule and after a norm on the branch's
output. attention: logits or weights `[batch, head, query, key]`. readout: logits of the output
`[batch, token, character]`. inner: any other `[batch, token, features]`, which is measured only."""


def always(_: Design) -> bool:
    """Every design has it."""
    return True


class Site(NamedTuple):
    """One site."""

    name: str
    """The name that the model's tap is called with."""
    label: str
    kind: Kind
    there: Callable[[Design], bool] = always
    """Whether a design has it."""
    before_mlp: bool = False
    """Whether it is computed before its layer's MLP: half a layer earlier than the layer's end."""
    once: bool = False
    """Whether the model has it once, before its layers, and not in each."""
    matrices: tuple[str, ...] = ()
    """The weight matrices that set its size, beyond those of the sites before it in its branch."""
    statistics: tuple[str, ...] = ()
    """Names of the statistics that are measured there beside those of its kind."""

    def layers(self, n_layers: int) -> int:
        """How many of it there are in a model of so many layers."""
        return 1 if self.once else n_layers


TAPS: Mapping[str, Site] = MappingProxyType(
    {
        site.name: site
        for site in (
            Site("embed", "input", "stream", once=True),
            Site(
                "attn_scores",
                "attention logits",
                "attention",
                lambda design: design.attends,
                before_mlp=True,
                matrices=("W_Q", "W_K"),
            ),
            Site(
                "pattern",
                "attention pattern",
                "attention",
                lambda design: design.attends,
                before_mlp=True,
            ),
            Site(
                "attn_out",
                "attention output",
                "branch",
                lambda design: design.attends,
                before_mlp=True,
                matrices=("W_V", "W_G", "W_O"),
            ),
            Site("resid_mid", "stream after attention", "stream", before_mlp=True),
            Site("mlp_out", "MLP output", "branch", matrices=("W_gate", "W_in", "W_out")),
            Site("resid_post", "stream after MLP", "stream"),
            Site("logits", "output logits", "readout", lambda design: design.predicts_text),
        )
    }
)
"""The sites, in the order in which a layer computes them."""


def sites_of(*kinds: Kind) -> tuple[str, ...]:
    """Names of the sites of some kinds, the kinds one after the other."""
    return tuple(site.name for kind in kinds for site in TAPS.values() if site.kind == kind)


STREAM = sites_of("stream")
"""The residual stream: at the input, after each attention sublayer, after each MLP sublayer (norms
included)."""
BRANCHES = sites_of("branch")
"""Each branch's term of the sum: before any multiplier of the residual rule, after a norm on the
branch's output."""
ROWS = sites_of("attention")
"""Sites of attention, by head."""
FORWARD = tuple(TAPS)
"""The order in which a layer's sites are computed."""
SITE_WORDS: Mapping[str, str] = Texts({site.name: site.label for site in TAPS.values()})
"""Words for the sites; a weight matrix keeps its name."""

MATRICES = ("W_Q", "W_K", "W_V", "W_G", "W_O", "W_gate", "W_in", "W_out")
"""The weight matrices of a layer, in the order of the forward pass."""
VECTORS = ("sink", "alpha", "mix")
"""Other learned parameters of a layer: a sink's logits, the residual α, and the mix of several
streams."""
