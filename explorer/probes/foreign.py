"""`probe`: a `Profile` of any `torch.nn.Module`, from one pass forward and backward that leaves no trace in it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from torch import nn

from explorer.display import must_be
from explorer.probes.blocks import find_stacks
from explorer.probes.calls import Batch, Loss, loss_of, repeated, unwrapped
from explorer.probes.seen import Seen
from explorer.probes.sites import Sites
from explorer.probes.twin import Twin
from explorer.probes.untouched import untouched
from explorer.probes.watched import Watch, backward
from explorer.profile import Profile


def probe(model: nn.Module, batch: Batch, loss: Loss | None = None,
          blocks: str | Sequence[str] | Mapping[str, str] | None = None) -> Profile:
    """Measures a model of any code, as it is: every statistic of the vocabulary that can be seen in it, by layer.

    One pass forward and backward, eager, in the mode the model is in. Parameters, buffers, gradients, hooks, mode and
    random state are afterwards what they were, also after an exception. Frozen parameters take part; compiled code
    runs as written, and gradient checkpoints are passed over: one block's inner tensors and all that autograd keeps are
    held at a time.

    What is a stream, a branch, a norm or a matrix follows from the operations that a block runs, not from names: a
    dispatch mode of torch sees them all, fused attention included, of which H = log Σ exp(s) − E[s]. What a block does
    not show in this way is left out, and `notes` says what only some layers have. Where nothing attends, the first of
    two branches stands at attn_out; where streams are several, the block's input and output are all that is read of
    them. `explorer.profile.STATISTICS` has each statistic's definition and source.

    Args:
        model: any module with repeated blocks.
        batch: a tensor, a tuple of positional or a mapping of named arguments; or a function that runs the model,
            which it is given, and returns its output.
        loss: from the model's output to a scalar; None for the output's own, where it has one named loss, else for its
            projection on a random direction of unit expected norm, as `measure` has it.
        blocks: names of the blocks, in which * stands for anything; None to find them. A mapping of sites to names of
            modules whose outputs they are, such as {"attn_out": "h.*.attn", "resid_post": "h.*"}, where the code is not
            understood; attention and matrices are then not read.
    Returns:
        The longest stack's profile, of equals the later one's: a decoder comes before its encoder. `others` has those
        of the other stacks. A block that is called several times is as many layers.
    Raises:
        TypeError, ValueError: the model, the batch, the loss or the blocks will not do; says which, and why.
    """
    return _probed(model, batch, loss, blocks)[0]


def _probed(model: nn.Module, batch: Batch, loss: Loss | None,
            blocks: str | Sequence[str] | Mapping[str, str] | None) -> tuple[Profile, Seen]:
    """The longest stack's profile, and what was seen of it."""
    model = unwrapped(must_be(nn.Module, "model", model))
    begun = time.perf_counter()
    with untouched(model), ExitStack() as stack:
        if isinstance(blocks, Mapping):
            sites = Sites(model, blocks)
            output, seen, refused = sites.run(model, batch), [sites.seen], []
        else:
            seen = _stacks(model, batch, blocks)
            watch = Watch(model, seen)
            stack.callback(watch.restore)
            output = watch.run(model, batch)
            refused = [one.refused for one in seen if one.refused]
            seen = [one for one in seen if one.sites and not one.refused]
            if not seen:
                raise ValueError("; ".join(refused) or "blocks must be run by the model; none of those found was")
        value, scale = loss_of(output, loss)
        backward(value, seen, model)
    name, seconds = type(model).__name__, time.perf_counter() - begun
    others = [one.profile(name, seconds, scale) for one in seen[1:]]
    found = seen[0].profile(name, seconds, scale, others)
    return replace(found, remarks=(*found.remarks, *refused)), seen[0]


def twin(model: nn.Module, batch: Batch, blocks: str | Sequence[str] | None = None, loss: Loss | None = None) -> Twin:
    """The design of ours that is nearest to a model of any code: what `predict` says of it is the line under its dots.

    One pass forward and backward, as `probe` makes it. Read from the operations and from their numbers, by block:
    sizes, placement and kind of the norms and their ε, the function of the MLP and whether it is gated, what attention
    divides, caps, normalizes, hides and turns, the multipliers of stream and branch, and the variance of each matrix;
    and the second moment and token correlation of the first block's input. Then what theory expects of it is compared
    with what was measured: `Twin.parts` says where the model behaves otherwise.

    Args:
        model: any module with repeated blocks.
        batch: as for `probe`; two sequences or more show whether positions are added to the embeddings.
        blocks: names of the blocks, in which * stands for anything; None to find them.
        loss: as for `probe`.
    Raises:
        TypeError, ValueError: the model, the batch, the loss or the blocks will not do, or no branch of a block was
            seen.
    """
    seen = _probed(model, batch, loss, blocks)[1]
    if seen.twin is None:
        why = f"could not be read: {seen.design.unread[0]}" if seen.design.unread else "no sum was seen in those"
        raise ValueError(f"blocks must add branches to a stream; {why} of {type(model).__name__}")
    return seen.twin


def _stacks(model: nn.Module, batch: Batch, blocks: str | Sequence[str] | None) -> list[Seen]:
    """The stacks to watch: those of the module tree, or blocks that are called again and again."""
    try:
        return [Seen(stack) for stack in find_stacks(model, blocks)]
    except ValueError:
        shared = [] if blocks is not None else repeated(model, batch)
        if not shared:
            raise
        return [Seen(stack) for stack in shared]
