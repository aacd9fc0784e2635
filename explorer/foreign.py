"""The words for what an instrument reads of a model that is not ours: faults, traits and facts of
its code, and which of its parameters learn.

`Profile` has them beside the statistics; the plug-in `explorer_models` fills them in, and
`diagnosis` makes sentences of them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Fault(NamedTuple):
    """Something that is wrong in itself in a model that is not ours, as `own.faults` reads it."""

    kind: str
    """A key of `diagnosis.faults.KINDS`."""
    layer: int
    """From 1; 0 outside the layers."""
    place: str
    """A matrix, a site or a norm, in words; empty where the parameter's name says all."""
    value: float
    """How many numbers are meant, or of which size they are."""
    name: str = ""
    """Of the parameter, of the operation, or of the data type."""


TRAITS = (
    "no norm",
    "norm on the sum alone",
    "no residual",
    "norm on queries and keys",
    "no norm on queries and keys",
    "logits not divided",
    "norm after the layers",
    "no norm after the layers",
)
"""Words for what all layers of a model have in common, each read off its operations."""
LOGITS = ("loss", "error", "classes", "variance", "rms", "largest", "square_log_sum")
"""Mean cross-entropy in nats and its standard error over rows; number of classes; variance of a
row's logits, mean over rows; their root mean square and largest |z|; mean (ln Σ e^z)² over rows."""

FACTS = {
    "softmax": "axis over which attention's weights sum to 1: keys, queries, heads or sequences",
    "mask": "keys that a query sees: all (none), causal, reversed (later ones alone), ahead (one too many), another",
    "divisor": "of the attention logits",
    "d_head": "coordinates of a head",
    "qk_norm": "whether queries or keys are normalized: yes or no",
    "rotary": "mistake of rotary positions, see `own.heads.ROTARY`",
    "rotary_speed": "factor on rotary positions, where it is not 1",
    "restart": "token, from 0, at which rotary positions begin anew",
    "attention_skip": "factor on the stream that attention is added to",
    "mlp_skip": "factor on the stream that the MLP is added to",
    "attention_added": "no, where attention is computed and added to nothing",
    "modules": "distinct modules that a container of layers repeats from end to end, and the next",
    "entries": "entries of that container",
    "target": "what says that the model predicts tokens: see `own.ahead`",
    "ahead": "share of the gradient of a row of its logits that goes to tokens that it must not see; 0 without any",
}
"""Names in `Profile.facts`, each there where it was read and is the same in all layers that have
it."""


State = Literal[
    "first",
    "second",
    "later",
    "waiting",
    "frozen",
    "idle",
    "zeros",
    "never",
    "unreached",
    "unused",
    "uncalled",
    "checkpoint",
    "no_grad",
    "unheld",
    "no_rate",
    "unmoved",
]
"""Why parameters learn, or do not.

first: a gradient at the first step. second: exactly 0 then, and not at the second step. later: not
at a later one. waiting: exactly 0 so far, with no further step that was read. frozen: requires_grad
is False. idle: no gradient in this batch, where modules of the same name beside them have one, as
experts do.

zeros: exactly 0 at every step that was read, and so are the parameters themselves. never: exactly 0
at every such step. unreached: no path from the loss. unused: no operation reads them. uncalled:
their module was not called. checkpoint: a reentrant gradient checkpoint, none of whose arguments
requires a gradient. no_grad: their layer runs under torch.no_grad(). unheld: a gradient, and no
optimizer that has stepped holds them. no_rate: the learning rate of all their steps is 0. unmoved:
matrices with a gradient, and an optimizer's steps that change no number. """
STUCK: tuple[State, ...] = (
    "unheld",
    "no_rate",
    "unmoved",
    "checkpoint",
    "no_grad",
    "unreached",
    "zeros",
    "never",
    "uncalled",
    "unused",
)
"""States of parameters that do not learn, and are not frozen."""


class Part(NamedTuple):
    """Parameters of one name and state, in all layers that have them."""

    state: State
    name: str
    """Of the parameter or the module within its layer, such as attn.lora_A; within the model where
    it is in none. * stands for a number, and nothing for a whole layer."""
    layers: tuple[int, ...]
    """From 1; empty where they are in no layer of the stack."""
    parameters: int
    """How many they are."""
    matrix: bool
    """Whether one of them has two axes or more; of those whose gradient stays 0, two that are
    longer than 1."""


class Learning(NamedTuple):
    """Which parameters of a model that is not ours learn, and why others do not."""

    parts: tuple[Part, ...] = ()
    steps: int = 0
    """Steps of a training in which they were seen; 0 of a probe, which takes one small step itself
    where it must."""
    projected: bool = False
    """Whether the loss was a projection of the model's first output, which need not depend on all
    of the model."""
    facts: tuple[str, ...] = ()
    """Sentences on what was seen beside the states, such as how a gradient was read."""

    def of(self, *states: State) -> list[Part]:
        """The parts in some states."""
        return [part for part in self.parts if part.state in states]


NOT_READ = Learning()
