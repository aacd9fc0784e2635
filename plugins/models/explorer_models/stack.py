"""Numbers of a stack of blocks: of the signal, taken as each block ends, and of the gradients,
which come later."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from explorer.diagnosis.remedies import listed
from explorer.foreign import Fault
from explorer.measuring.spectra import of_heads
from explorer.measuring.statistics import Signal, norms, second_moment
from explorer.profile import Profile
from explorer.sites import MATRICES, ROWS, STREAM, VECTORS
from explorer.vocabulary import STATISTICS, Array, Key
from explorer_models import faults
from explorer_models.anatomy import Anatomy, Layout, Piece, branches_by_site, ends_with_norm, layout
from explorer_models.attention import read_attention
from explorer_models.differences import differences
from explorer_models.facts import UNREADABLE, Facts, read_facts
from explorer_models.fields import Source
from explorer_models.kinds import kinds
from explorer_models.matrices import by_head, weight_values
from explorer_models.model import Block, kind_of, named_error
from explorer_models.nodes import Node, is_norm
from explorer_models.shared import traits_of
from explorer_models.texts import text
from explorer_models.twin import Twin, twin_of

HEADS = ("largest_possible_logit", "logit_rank")
"""Statistics of W_Qᵀ W_K by head."""
SMALL = 1e-6
"""Second moment of a token, over the mean of all, below which it is almost 0: a norm multiplies its
gradient by 10⁶."""


class Stack:
    """Measurements and design of one stack of blocks.

    Args:
        blocks: its modules, in order; one that is called several times is as many layers.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.layers: list[str] = []
        self.anatomies: list[Anatomy] = []
        """Of each layer; the numbers of its graph are gone."""
        self.facts: list[Facts] = []
        self.sites: list[dict[str, Node]] = []
        self.values: defaultdict[Key, dict[int, Tensor]] = defaultdict(dict)
        """By layer from 0."""
        self.headless: dict[int, str] = {}
        """Layers, from 1, whose queries and keys by head could not be read, and why."""
        self.pattern: Tensor | None = None
        self.gradients: Mapping[int, Tensor] = {}
        """By the id of the parameter."""
        self.gates: list[str] = []
        """Names of weights after the layers that are 0 and whose gradient is not."""
        self.small = (0, 0)
        """How many tokens of the input are almost 0, and of how many."""
        self.counts: list[int] = []
        """Tokens that go into the first layer, and that come out of each."""
        self.dtype = ""
        self.layout = Layout()
        self.sources: list[Tensor] = []
        """Where the backward pass may end: what goes into the first block."""
        self.source: Source | None = None
        self.tail: Sequence[Node] = ()
        """Nodes computed after the block that ran last."""
        self.final: bool | None = None
        """Whether a norm follows the last block; None where that is not known."""
        self.spectra = False
        """Whether spectral norms and stable ranks of the matrices are wanted."""
        self.refused = ""
        """Why its blocks are not read, where they are not."""
        self.twin: Twin | None = None
        self.faults: list[Fault] = []
        self.norm_gains: dict[int, tuple[int, str]] = {}
        """Ids of the parameters that are gains of norms, to the layer, from 1, and the norm's place
        in words."""
        self.normed = False
        """Whether an operation of a block divides by the size of what it is given."""
        self.several: list[tuple[tuple[int, ...], ...]] = []
        """Of each layer the shape of the output that was read, and those of other streams that it
        puts out."""
        self.branches: list[tuple[int, int]] = []
        """Of each layer how many branches it adds, and how many of them were read."""
        self.cut: list[str] = []
        """Blocks whose input needs no gradient, so that none goes on from there."""
        self.by_weight: Mapping[Key, Array] = {}
        """Norms of the gradients by what the layers learn."""
        self.waits: Mapping[str, tuple[int, ...]] = {}
        """Matrix to the layers, from 1, in which its gradient is 0 before the first step and not
        after it."""

    @property
    def runs(self) -> list[Block]:
        """The blocks in the order in which they ran; one that is called several times comes as
        often."""
        by_path = {block.path: block for block in self.blocks}
        return [by_path[path] for path in self.layers]

    def take(self, block: Block, anatomy: Anatomy) -> None:
        """Reads a block that has just run, whose tensors are freed afterwards."""
        index = len(self.sites)
        if not index:
            self.take_input(anatomy)
        for site, node in anatomy.sites.items():
            self.signal(site, node.tensor, index)
        self.counts.append(self.layout.arrange(anatomy.output.tensor).shape[1])
        if anatomy.attention is not None and anatomy.softmax == "keys":
            self.rows(anatomy.attention, anatomy.source.tensor)
        follow(anatomy.source)
        for site, node in anatomy.sites.items():
            if site in STREAM:
                follow(node)
        branches = [site for term in anatomy.sums for site, _ in branches_by_site(anatomy, term)]
        self.branches.append((len(branches), len(set(branches))))
        self.sites.append({"embed": anatomy.source, **anatomy.sites})
        self.anatomies.append(anatomy)
        self.layers.append(block.path)
        self.facts.append(self.facts_of(anatomy, block))
        self.faults += faults.of_block(anatomy, index + 1)
        self.normed = self.normed or any(map(is_norm, anatomy.order))
        self.note_gains(faults.gains_of(anatomy), index + 1)
        if self.spectra:
            self.heads(anatomy)

    def take_input(self, anatomy: Anatomy) -> None:
        """Reads the stream as it goes into the first block."""
        stream = anatomy.source.tensor
        self.layout, self.sources = layout(anatomy), [stream]
        self.dtype = str(stream.dtype).removeprefix("torch.")
        self.signal("embed", stream, 0)
        tokens = self.layout.arrange(stream)
        self.small = (int(almost_zero(tokens)), tokens[..., 0].numel())
        self.source = Source.of(tokens)
        self.counts = [tokens.shape[1]]

    def facts_of(self, anatomy: Anatomy, block: Block) -> Facts:
        """Facts of a block; where they cannot be read, the reason as its only fact."""
        why = text("unread", "not_finite")
        if bool(anatomy.source.tensor.isfinite().all()):
            try:
                return read_facts(anatomy, block.module)
            except UNREADABLE as error:
                why = named_error(error)
        return {("layer", "unread"): (("design", why),)}

    def note_gains(self, gains: Iterable[faults.Gains], layer: int) -> None:
        """Remembers which parameters are the gains of norms of a layer, from 1; 0 of those after
        the layers."""
        for gain in gains:
            if gain.parameter is not None:
                self.norm_gains[id(gain.parameter)] = layer, gain.place

    def end(self) -> None:
        """Reads what follows the last block, once the model has run."""
        if self.source is not None:
            self.final = ends_with_norm(self.tail)
            self.faults += faults.after_layers(self.tail)
            self.note_gains(faults.gains_after(self.tail), 0)
        self.tail = ()

    def signal(self, site: str, tensor: Tensor, layer: int) -> None:
        """Takes the statistics of a tensor of the stream, or of a branch.

        Args:
            site: of the tensor.
            tensor: as it lies in the model.
            layer: from 0.
        """
        x = self.layout.arrange(tensor.detach())
        signal = Signal.of((x if x.dtype == torch.float64 else x.float())[None])
        for row in STATISTICS.values():
            several = x.shape[1] > 1 or not row.name.startswith("token_correlation")
            if row.reduce is not None and site in row.sites and several:
                self.values[row.name, site][layer] = row.reduce(signal)

    def rows(self, attention: Node, stream: Tensor) -> None:
        """Takes the statistics of a block's attention."""
        rows = read_attention(attention, len(self.layout.arrange(stream)))
        if rows is None:
            return
        layer = len(self.sites)
        if not layer:
            self.pattern = rows.pattern[0, 0, 0]
        for row in STATISTICS.values():
            for site in ROWS:
                if row.reduce is not None and site in row.sites:
                    value = row.reduce(rows)
                    if value.numel():
                        self.values[row.name, site][layer] = value

    def heads(self, anatomy: Anatomy) -> None:
        """Takes the spectra of W_Qᵀ W_K by head. They say nothing where norms give queries and
        keys their length, and there are none of an attention that was not read."""
        facts = self.facts[-1]
        if facts.get(("attn_scores", "normed"), ("norm",))[:2] != ("", ""):
            return
        try:
            queries, keys = by_head(anatomy, len(self.layout.arrange(anatomy.source.tensor)))
            values = of_heads(queries[None], keys[None], facts["attn_scores", "divisor"])
        except UNREADABLE as error:
            self.headless[len(self.facts)] = named_error(error)
            return
        for key, value in values.items():
            self.values[key][len(self.facts) - 1] = torch.from_numpy(value)

    def profile(self, name: str, seconds: float, others: Sequence[Profile] = ()) -> Profile:
        """All of it as one record, with its twin; see `self.twin`.

        Args:
            name: of the model.
            seconds: that the measurement took.
            others: profiles of the other stacks.
        """
        values, notes, absent = self.by_site()
        last = self.sites[-1]["resid_post"].gradient
        if self.headless:
            why = next(iter(self.headless.values()))
            note = text("note", "heads", **_first(list(self.headless)), error=why)
            notes |= dict.fromkeys(HEADS, note)
        notes |= gradient_note(bool(last) and not float(sum(last)), self.gates, self.small)
        notes |= tokens_note(self.counts)
        values |= self.by_stream()
        values |= self.by_weight
        values |= weight_values(self.matrices(), self.spectra)
        self.note_absent(values, notes, absent)
        whole = Profile(
            "measured",
            values,
            model=name,
            layers=tuple(self.layers),
            dtype=self.dtype,
            notes=notes,
            seeds=(0,),
            seconds=seconds,
            pattern=None if self.pattern is None else self.pattern.double().cpu().numpy(),
            pattern_of=None if self.pattern is None else (1, 0),
            others=tuple(others),
            shapes=self.shapes(),
            differences=differences(self.facts),
            kinds=kinds(self.facts),
            absent=absent,
            faults=tuple(self.faults),
            traits=tuple(traits_of(self.facts, self.normed, self.final)),
            waits=self.waits,
            coverage=tuple(self.coverage()),
        )
        unread = self.unread()
        twin = self.source and twin_of(self.facts, self.source, self.final, whole, unread)
        self.twin = twin
        if twin is None:
            return replace(whole, remarks=unread)
        config = None if twin.parts else twin.config
        return replace(whole, twin=config, remarks=twin.unread + twin.differs + twin.parts)

    def note_absent(
        self,
        values: Mapping[Key, Array],
        notes: dict[str, str],
        absent: dict[Key, tuple[int, ...]],
    ) -> None:
        """Notes the layers that lack a matrix, and those whose matrix is 0 and has no rank.

        Args:
            values: of the profile.
            notes: by statistic; gets the reasons.
            absent: layers, from 1, without a value, by statistic and site; gets these.
        """
        for matrix, layers in self.matrices().items():
            without = tuple(layer for layer, pieces in enumerate(layers, start=1) if not pieces)
            if without:
                absent |= {key: without for key in values if key[1] == matrix}
                for statistic in ("parameter_gradient", "weight_variance", "weight_likeness"):
                    note = text("note", "matrix", matrix=matrix, **_first(without))
                    notes.setdefault(statistic, note)
            if self.spectra:
                zeros = np.flatnonzero(values["spectral_norm", matrix][0] == 0) + 1
                key = "stable_rank", matrix
                absent[key] = (*absent.get(key, ()), *zeros.tolist())

    def by_site(self) -> tuple[dict[Key, Array], dict[str, str], dict[Key, tuple[int, ...]]]:
        """Statistics of the forward pass, `[1, layer, …]`, nan where a layer has none.

        A site counts that most layers have in one shape; attention's also where few layers have
        it, as in a hybrid.

        Returns:
            the values; notes by statistic on what is left out; and the layers, from 1, without a
                value.
        """
        values: dict[Key, Array] = {}
        notes: dict[str, str] = {}
        absent: dict[Key, tuple[int, ...]] = {}
        for key, by_layer in self.values.items():
            statistic, site = key
            count = 1 if site == "embed" else len(self.sites)
            shape, n_alike = Counter(value.shape for value in by_layer.values()).most_common(1)[0]
            if 2 * n_alike <= count and site not in ROWS:
                note = text("note", "shape", site=site, count=len(by_layer), layers=count)
                notes.setdefault(statistic, note)
                continue
            none = np.full(shape, np.nan)
            alike = {
                layer: value.double().cpu().numpy()
                for layer, value in by_layer.items()
                if value.shape == shape
            }
            values[key] = np.concatenate([alike.get(layer, none) for layer in range(count)])[None]
            if n_alike < count:
                absent[key] = tuple(layer + 1 for layer in range(count) if layer not in alike)
                notes.setdefault(statistic, text("note", "site", site=site, **_first(absent[key])))
        return values, notes, absent

    def by_stream(self) -> dict[Key, Array]:
        """Mean squared gradients by the stream, relative to the last layer's; none where that is
        0."""
        values: dict[Key, Array] = {}
        last = float(sum(self.sites[-1]["resid_post"].gradient))
        for site in STREAM if last else ():
            layers = self.sites[:1] if site == "embed" else self.sites
            gradients = [sites[site].gradient for sites in layers if site in sites]
            if len(gradients) == len(layers) and all(gradients):
                sizes = np.array([float(sum(gradient)) for gradient in gradients])
                # a vanished or exploded gradient is shown as what it is
                with np.errstate(all="ignore"):
                    values["activation_gradient", site] = (sizes / last)[None]
        return values

    def of_weights(self, scale: float) -> dict[Key, Array]:
        """Norms of the gradients by matrices and vectors, `[1, layer]`.

        Args:
            scale: by which the loss was multiplied: gradients are divided by it.
        """
        learned = self.matrices()
        for name in VECTORS:
            layers = [anatomy.vectors.get(name, []) for anatomy in self.anatomies]
            if layers and all(layers):
                learned[name] = layers
        return {
            ("parameter_gradient", name): np.array(
                [[self.gradient(pieces) / scale for pieces in layers]]
            )
            for name, layers in learned.items()
        }

    def still(self) -> list[nn.Parameter]:
        """Parameters of matrices whose gradient has been exactly 0 so far, in some layer."""
        learned = self.matrices()
        return [
            piece.parameter
            for (_, name), norms_ in self.by_weight.items()
            if name in learned
            for layer, (pieces, norm) in enumerate(
                zip(learned[name], norms_[0], strict=True), start=1
            )
            if norm == 0 and layer not in self.waits.get(name, ())
            for piece in pieces
            if id(piece.parameter) in self.gradients
        ]

    def step(self, gradients: Mapping[int, Tensor], scale: float) -> bool:
        """Takes the gradients after a first step, and notes the matrices that had none before it.

        Args:
            gradients: by the id of the parameter.
            scale: by which the loss was multiplied.
        Returns:
            whether there are more such matrices than before.
        """
        before = dict(self.waits)
        self.gradients = {**self.gradients, **gradients}
        for (_, name), later in self.of_weights(scale).items():
            waited = (self.by_weight["parameter_gradient", name][0] == 0) & (later[0] != 0)
            layers = {*before.get(name, ()), *(np.flatnonzero(waited) + 1).tolist()}
            if layers and name in MATRICES:
                self.waits = {**self.waits, name: tuple(sorted(layers))}
        return self.waits != before

    def gradient(self, pieces: Sequence[Piece]) -> float:
        """Norm of the gradient by some parameters together: 0 where the loss depends on none of
        them, nan without parameters."""
        parts = [
            piece.of(self.gradients[id(piece.parameter)])
            for piece in pieces
            if id(piece.parameter) in self.gradients
        ]
        return float(np.linalg.norm(norms(parts))) if parts else 0.0 if pieces else np.nan

    def coverage(self) -> Iterator[str]:
        """Sentences on what of the blocks was not read, or not run."""
        count = len(self.layers)
        missing = [block.path for block in self.blocks if block.path not in self.layers]
        if missing:
            blocks = len(self.blocks)
            yield text(
                "coverage", "not_run", count=len(missing), blocks=blocks, paths=listed(missing)
            )
        yield from streams_sentence([shapes for shapes in self.several if len(shapes) > 1], count)
        partly = [pair for pair in self.branches if pair[0] > pair[1]]
        if partly:
            (added, numbers), times = Counter(partly).most_common(1)[0]
            yield text(
                "coverage", "branches", count=times, layers=count, added=added, numbers=numbers
            )
        cut = [path for path in self.cut if path != self.layers[0]] if count > 1 else []
        if cut:
            yield text("coverage", "cut", blocks=listed(cut))

    def unread(self) -> tuple[str, ...]:
        """A sentence for each part of a layer that could not be read, with the number of such
        layers."""
        where: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path, facts in zip(self.layers, self.facts, strict=False):  # named sites have no facts
            for name in facts.get(("layer", "unread"), ()):
                where[name].append(path)
        return tuple(
            text("unread", name, block=paths[0], more=len(paths) - 1, error=why)
            for (name, why), paths in where.items()
        )

    def shapes(self) -> dict[str, tuple[int, int]]:
        """`(fan_in, fan_out)` of each matrix that all layers have in one shape."""
        names = [name for name, fact in (self.facts[0] if self.facts else {}) if fact == "shape"]
        shapes = {name: {facts.get((name, "shape")) for facts in self.facts} for name in names}
        return {
            name: size
            for name, sizes in shapes.items()
            if len(sizes) == 1 and (size := sizes.pop()) is not None
        }

    def matrices(self) -> dict[str, list[list[Piece]]]:
        """The matrices of the vocabulary that most blocks have, by layer; a layer that lacks one
        has no pieces."""
        pieces = {
            name: [anatomy.matrices.get(name, []) for anatomy in self.anatomies]
            for name in MATRICES
        }
        return {
            name: layers
            for name, layers in pieces.items()
            if 2 * sum(map(bool, layers)) > len(layers)
        }


def _first(layers: Sequence[int]) -> dict[str, int]:
    """The first of some layers, and how many more there are, as a text's placeholders."""
    return {"layer": layers[0], "more": len(layers) - 1}


def streams_sentence(several: Sequence[Sequence[tuple[int, ...]]], layers: int) -> Iterator[str]:
    """A sentence on layers that put out several streams, where there are such.

    Args:
        several: of each such layer the shape of the stream that is read, then the others'.
        layers: number of all.
    """
    if several:
        shape, *others = several[0]
        yield text(
            "coverage",
            "streams",
            count=len(several),
            layers=layers,
            streams=1 + len(others),
            shape=str(shape),
            others=listed(map(str, others)),
        )


def stacks_sentence(stacks: Sequence[Sequence[str]]) -> str:
    """The number of blocks of some stacks, and their names, as a list in a sentence."""
    return listed(
        text("coverage", "stack", blocks=len(paths), path=kind_of(paths)) for paths in stacks
    )


def almost_zero(x: Tensor) -> Tensor:
    """Number of tokens `[…, coordinate]` that are so small that a norm multiplies their gradient
    by 10⁶ or more."""
    sizes = x.detach().float().square().mean(-1)
    return (sizes < SMALL * sizes.mean()).sum()


def gradient_note(nothing: bool, gates: Sequence[str], small: tuple[int, int]) -> dict[str, str]:
    """A note on a gradient by the stream that is absent, or large at the input, by statistic.

    Args:
        nothing: whether the gradient at the last layer is exactly 0.
        gates: weights after the layers that are 0 and whose gradient is not.
        small: how many tokens of the input are almost 0, and of how many.
    """
    count, tokens = small
    if nothing and gates:
        note = text("note", "first_step", weights=listed(gates))
    elif nothing:
        note = text("note", "no_gradient")
    elif count:
        note = text(
            "note", "zero_tokens" if count > 1 else "zero_token", count=count, tokens=tokens
        )
    else:
        return {}
    return {"activation_gradient": note}


def tokens_note(counts: Sequence[int]) -> dict[str, str]:
    """A note on correlations of tokens, where a layer changes how many tokens there are.

    Args:
        counts: tokens that go into the first layer, and that come out of each.
    """
    for layer, (before, after) in enumerate(pairwise(counts), start=1):
        if before != after:
            return {
                "token_correlation": text("note", "tokens", before=before, after=after, layer=layer)
            }
    return {}


def follow(node: Node) -> None:
    """Hooks a tensor of the stream, so that the mean square of its gradient is kept."""
    if node.tensor.requires_grad and not node.followed:
        node.followed = True
        node.tensor.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: node.gradient.append(second_moment(gradient.detach().float()[None])[0])
        )
