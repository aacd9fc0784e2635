"""Learned mixes: of several streams (hyper-connections), or of all earlier outputs (attention over
depth).

Between layers travels a pair: the stream as it is shown, `[batch, token, d_model]`, and tensors
that the model passes along beside it. A gradient by what is shown is that of one stream: how the
loss changes where the sum of all outputs changes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from explorer.design import Design
from explorer.model import noise
from explorer.schemes.residual import outputs_before

DEVIATION = 0.02
"""Standard deviation of mHC's projections at initialization, as in transformers; its paper does not
say."""
SCALE = 0.01
"""Scale of the part that the token adds to the learned mix, at initialization: hyper-connections,
table 1, and mHC."""
ITERATIONS = 20
"""Iterations of Sinkhorn and Knopp, as in mHC."""
LESS = 256
"""Numbers that take more bytes than the alignment and the header of a block of memory."""


class Connections(nn.Module):
    """n streams, mixed by H_pre to what a branch reads, by H_post to where its output goes, by
    H_res among each other.

    All three are a learned table and a part that the token decides: of the streams' shape `[stream,
    n + 2]`, with H_pre in the first column, H_post in the second and H_res, from the row's stream,
    in the others. Unconstrained, each stream decides its own row, through a tanh; else all streams
    together decide all, and a sigmoid or Sinkhorn's iterations make weights of it."""

    def __init__(self, design: Design, layer: int, seed: int) -> None:
        super().__init__()
        self.n, self.constrained = design.settings.n_streams, design.stream.constrained
        self.passed = int(layer > 1)
        """Number of tensors that the layer before passes on."""
        shapes = design.mix_shapes
        tables, by_token = torch.zeros(shapes["mix"]), torch.zeros(shapes["mix_by_token"])
        if self.constrained:
            name = f"mix_by_token {layer}"
            by_token = noise.scaled(DEVIATION, seed, name, 1, shapes["mix_by_token"])[0]
        else:
            # branches read the streams in turn, write to all, and leave each stream as it is
            first_branch = outputs_before(design.settings, 2 * layer - 2) - 1
            for branch, table in enumerate(tables, first_branch):
                table[branch % self.n, 0] = 1
                table[:, 1] = 1
                table[:, 2:] = torch.eye(self.n)
        self.mix, self.mix_by_token = nn.Parameter(tables), nn.Parameter(by_token)
        self.mix_scale = nn.Parameter(torch.full(shapes["mix_scale"], SCALE))

    def enter(self, x: Tensor, carried: tuple[Tensor, ...]) -> Tensor:
        """The streams `[stream, batch, token, d_model]`, from the shown one, their mean, and the
        deviations from it that the layer before passes on; all are alike at the embedding."""
        return x + carried[0] if carried else x.expand(self.n, *x.shape)

    def gather(self, streams: Tensor, branch: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The input of a branch, 0 or −1 for the last, and what `add` needs: streams and
        weights."""
        weights = self.weights(streams, branch)
        return torch.einsum("nbt,nbtd->btd", weights[..., 0], streams), (streams, weights)

    def weights(self, streams: Tensor, branch: int) -> Tensor:
        """H_pre, H_post and H_res of a branch for each token, `[stream, batch, token, n + 2]`."""
        table, scale, by_token = self.mix[branch], self.mix_scale[branch], self.mix_by_token[branch]
        # one scale for H_pre, one for H_post, and one for all columns of H_res
        scale = torch.cat([scale, scale[2:].expand(self.n - 1)])
        if not self.constrained:
            decided = torch.tanh(F.linear(F.rms_norm(streams, streams.shape[-1:]), by_token))
            return table[:, None, None] + scale * decided
        together = streams.movedim(0, 2).flatten(2)  # [batch, token, stream · d_model]
        decided = F.linear(F.rms_norm(together, together.shape[-1:]), by_token)
        decided = decided.reshape(*together.shape[:2], *table.shape).movedim(2, 0)
        raw = table[:, None, None] + scale * decided
        pre, post = raw[..., :1].sigmoid(), 2 * raw[..., 1:2].sigmoid()
        return torch.cat([pre, post, sinkhorn(raw[..., 2:])], -1)

    def add(
        self, state: tuple[Tensor, Tensor], term: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Adds a branch's output to the streams, and mixes them.

        Args:
            state: streams and weights, as `gather` gives them.
            term: the branch's output, `[batch, token, d_model]`.
        Returns:
            the shown stream `[batch, token, d_model]`, which is the streams' mean; the streams
            `[stream, batch, token, d_model]`, for the next branch of this layer; and the tensors
            for the next layer, of which `enter` makes these streams again: their deviations from
            the mean.
        """
        streams, weights = state
        streams = torch.einsum("nbtm,nbtd->mbtd", weights[..., 2:], streams)
        streams = streams + weights[..., 1, None] * term
        mean = streams.mean(0)
        deviations = streams - mean
        # a node of its own in autograd's graph: the gradient by it is measured. All streams are
        # computed from it, so that this gradient says how the loss changes where all move by as
        # much.
        shown = mean.view_as(mean)
        return shown, shown + deviations, (deviations,)


def sinkhorn(raw: Tensor) -> Tensor:
    """exp(raw) as a doubly stochastic matrix, `[from, ..., to]`: rows and columns are divided in
    turn by their sums, in logarithms."""
    for _ in range(ITERATIONS):
        raw = raw.log_softmax(-1).log_softmax(0)
    return raw.exp()


class DepthAttention(nn.Module):
    """A branch reads a softmax average over the embedding and all earlier outputs, by one query for
    each branch.

    The average after a branch, by the query of the one that reads it, is made at once and shown
    times the number of outputs: at initialization that is their sum."""

    def __init__(self, design: Design, layer: int, seed: int = 0) -> None:  # noqa: ARG002 - as its sister
        super().__init__()
        self.epsilon = design.settings.norm_epsilon
        self.passed = outputs_before(design.settings, 2 * layer - 2) if layer > 1 else 0
        """Number of tensors that the layer before passes on."""
        self.depth_query = nn.Parameter(torch.zeros(design.mix_shapes["depth_query"]))

    def enter(self, x: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The shown stream, and all outputs so far; the last of them is passed on as its difference
        from the shown stream."""
        return (x, *carried[:-1], x + carried[-1]) if carried else (x, x)

    def gather(
        self, state: tuple[Tensor, ...], branch: int
    ) -> tuple[Tensor, tuple[int, tuple[Tensor, ...]]]:
        """The input of a branch, the average of the outputs, and what `add` needs: the branch, 0 or
        −1 for the last, and the outputs."""
        shown, *outputs = state
        return shown / len(outputs), (branch, tuple(outputs))

    def add(
        self, state: tuple[int, tuple[Tensor, ...]], term: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Adds a branch's output to the list of outputs, and averages them for the next branch.

        Args:
            state: the branch and the earlier outputs, as `gather` gives them.
            term: the branch's output, `[batch, token, d_model]`.
        Returns:
            the shown stream `[batch, token, d_model]`, which is the average times the number of
            outputs; the state from which the next branch of this layer gathers: the shown stream,
            then all outputs, from the embedding to this one; and the tensors for the next layer,
            of which `enter` makes the same state: all outputs, with the newest one as its
            difference from the shown stream.
        """
        branch, earlier_outputs = state
        outputs = (*earlier_outputs, term)
        # computed again in the backward pass: the outputs side by side, once a branch, would be
        # most of the memory
        average = checkpoint(
            self.average,
            self.depth_query[branch],
            *outputs,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        total = average * len(outputs)
        # a node of its own in autograd's graph: the gradient by it is measured. The newest output
        # is computed from it, as total + (term - total), so that this gradient holds both ways to
        # the loss: by the next branch's input, and by later averages that have the newest output.
        shown = total.view_as(total)
        difference = term - total
        newest = shown + difference
        return shown, (shown, *earlier_outputs, newest), (*earlier_outputs, difference)

    def average(self, query: Tensor, *outputs: Tensor) -> Tensor:
        """Σ a_i v_i over outputs v `[batch, token, d_model]`, a = softmax over i of w ·
        RMSNorm(v_i), w the query `[d_model]`."""
        stacked: Tensor = Stacked.apply(*outputs)  # type: ignore[no-untyped-call]  # [batch, token, output, d_model]
        square = torch.linalg.vector_norm(stacked, dim=-1).square() / stacked.shape[-1]
        scores = (stacked @ query) * torch.rsqrt(square + self.epsilon)
        return (scores.softmax(-1)[..., None, :] @ stacked).squeeze(-2)


class Stacked(torch.autograd.Function):
    """Outputs side by side, as `torch.stack(outputs, dim=-2)`, in up to an eighth more room.

    Each branch has one output more, and room of just that size would never fit where the last was
    freed, between what stays: the C library would hold all of it, memory N² for N branches. So
    sizes are rounded up, and of those that are rounded to the same each is `LESS` numbers smaller
    than the one before, as glibc aligns within what it finds."""

    @staticmethod
    def forward(_: object, *outputs: Tensor) -> Tensor:
        """Outputs `[batch, token, d_model]` as `[batch, token, output, d_model]`."""
        first, count = outputs[0], len(outputs)
        multiple = 1 << max(count.bit_length() - 4, 0)  # a sixteenth to an eighth of the count
        spare = -count % multiple  # up to the next multiple
        memory = first.new_empty((count + spare) * first.numel() + spare * LESS)
        stacked = memory[: count * first.numel()].view(*first.shape[:-1], count, first.shape[-1])
        return torch.stack(outputs, dim=-2, out=stacked)

    @staticmethod
    def backward(_: object, *gradients: Tensor) -> tuple[Tensor, ...]:
        """The gradient by each output."""
        return gradients[0].unbind(-2)


MIXES = {"streams": Connections, "outputs": DepthAttention}
"""Modules by `StreamRule.mixes`."""
