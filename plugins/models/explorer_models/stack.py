"""Numbers of a stack of blocks: of the signal, taken as each block ends, and of the gradients,
which come later."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from explorer.diagnosis.remedies import listed
from explorer.measuring.spectra import of_heads
from explorer.measuring.statistics import Signal, norms, second_moment
from explorer.profile import MATRICES, ROWS, STATISTICS, STREAM, VECTORS, Array, Fault, Key, Profile
from explorer_models import faults
from explorer_models.anatomy import Anatomy, Layout, Piece, branches_by_site, ends_with_norm, layout
from explorer_models.attention import read_attention
from explorer_models.differences import differences
from explorer_models.facts import UNREADABLE, Facts, read_facts
from explorer_models.fields import Source
from explorer_models.kinds import kinds
from explorer_models.matrices import by_head, weight_values
from explorer_models.model import Block, named_error
from explorer_models.nodes import Node, is_norm
from explorer_models.texts import text
from explorer_models.traits import traits_of
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
        """Weights after the layers that are 0 and whose gradient is not."""
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
        """The blocks in the order in which they ran: one that is called several times is as
        many."""
        known = {block.path: block for block in self.blocks}
        return [known[path] for path in self.layers]

    def take(self, block: Block, anatomy: Anatomy) -> None:
        """Reads a block that has just run, and lets its tensors go."""
        if not self.sites:
            self.layout, self.sources = layout(anatomy), [anatomy.source.tensor]
            self.dtype = str(anatomy.source.tensor.dtype).removeprefix("torch.")
            self.signal("embed", anatomy.source.tensor, 0)
            tokens = self.layout.arrange(anatomy.source.tensor)
            self.small = (int(almost_zero(tokens)), tokens[..., 0].numel())
            self.source = Source.of(tokens)
            self.counts = [tokens.shape[1]]
        for site, node in anatomy.sites.items():
            self.signal(site, node.tensor, len(self.sites))
        self.counts.append(self.layout.arrange(anatomy.output.tensor).shape[1])
        if anatomy.attention is not None and anatomy.softmax == "keys":
            self.rows(anatomy.attention, anatomy.source.tensor)
        for node in (
            anatomy.source,
            *(node for site, node in anatomy.sites.items() if site in STREAM),
        ):
            follow(node)
        named = [site for term in anatomy.sums for site, _ in branches_by_site(anatomy, term)]
        self.branches.append((len(named), len(set(named))))
        self.sites.append({"embed": anatomy.source, **anatomy.sites})
        self.anatomies.append(anatomy)
        self.layers.append(block.path)
        if not bool(anatomy.source.tensor.isfinite().all()):
            self.facts.append({("layer", "unread"): (("design", text("unread", "not_finite")),)})
        else:
            try:
                self.facts.append(read_facts(anatomy, block.module))
            except UNREADABLE as error:
                self.facts.append({("layer", "unread"): (("design", named_error(error)),)})
        self.faults += faults.of_block(anatomy, len(self.sites))
        self.normed = self.normed or any(map(is_norm, anatomy.order))
        self.norm_gains |= {
            id(gains.parameter): (len(self.sites), gains.place)
            for gains in faults.gains_of(anatomy)
            if gains.parameter is not None
        }
        if self.spectra:
            self.heads(anatomy)

    def end(self) -> None:
        """The model has run."""
        if self.source is not None:
            self.final = ends_with_norm(self.tail)
            self.faults += faults.after_layers(self.tail)
            self.norm_gains |= {
                id(gains.parameter): (0, gains.place)
                for gains in faults.gains_after(self.tail)
                if gains.parameter is not None
            }
        self.tail = ()

    def signal(self, site: str, tensor: Tensor, layer: int) -> None:
        """Statistics of the stream and of the branches, in a layer from 0."""
        x = self.layout.arrange(tensor.detach())
        signal = Signal.of((x if x.dtype == torch.float64 else x.float())[None])
        for row in STATISTICS.values():
            several = x.shape[1] > 1 or not row.name.startswith("token_correlation")
            if row.reduce is not None and site in row.sites and several:
                self.values[row.name, site][layer] = row.reduce(signal)

    def rows(self, attention: Node, stream: Tensor) -> None:
        """Statistics of attention."""
        rows = read_attention(attention, len(self.layout.arrange(stream)))
        if rows is None:
            return
        if not self.sites:
            self.pattern = rows.pattern[0, 0, 0]
        for row in STATISTICS.values():
            for site in ROWS:
                if (
                    row.reduce is not None
                    and site in row.sites
                    and (value := row.reduce(rows)).numel()
                ):
                    self.values[row.name, site][len(self.sites)] = value

    def heads(self, anatomy: Anatomy) -> None:
        """Spectra of W_Qᵀ W_K by head; none of unread attention, or where norms give queries and
        keys their length."""
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
        """All of it as one record.

        Args:
            name: of the model.
            seconds: what it took.
            others: other stacks' profiles.
        """
        values, notes, absent = self.by_site()
        last = self.sites[-1]["resid_post"].gradient
        if self.headless:
            why = next(iter(self.headless.values()))
            notes |= dict.fromkeys(
                HEADS, text("note", "heads", **_first(list(self.headless)), error=why)
            )
        notes |= gradient_note(bool(last) and not float(sum(last)), self.gates, self.small)
        notes |= tokens_note(self.counts)
        values |= {
            **self.by_stream(),
            **self.by_weight,
            **dict(weight_values(self.matrices(), self.spectra)),
        }
        for matrix, layers in self.matrices().items():
            if without := tuple(
                layer for layer, pieces in enumerate(layers, start=1) if not pieces
            ):
                absent |= {key: without for key in values if key[1] == matrix}
                for statistic in ("parameter_gradient", "weight_variance", "weight_likeness"):
                    notes.setdefault(
                        statistic, text("note", "matrix", matrix=matrix, **_first(without))
                    )
            if self.spectra:  # zeros have no rank
                zeros = np.flatnonzero(values["spectral_norm", matrix][0] == 0) + 1
                absent["stable_rank", matrix] = (
                    *absent.get(("stable_rank", matrix), ()),
                    *zeros.tolist(),
                )
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
            traits=traits_of(self.facts, self.normed, self.final),
            waits=self.waits,
            coverage=tuple(self.coverage()),
        )
        unread = self.unread()
        twin = self.twin = self.source and twin_of(
            self.facts, self.source, self.final, whole, unread
        )
        if twin is None:
            return replace(whole, remarks=unread)
        return replace(
            whole,
            twin=None if twin.parts else twin.config,
            remarks=twin.unread + twin.differs + twin.parts,
        )

    def by_site(self) -> tuple[dict[Key, Array], dict[str, str], dict[Key, tuple[int, ...]]]:
        """Statistics of the forward pass that most layers have in one shape, why others are left
        out, and the layers that have none. Those of attention are kept for the layers that have
        them: in a hybrid these are few."""
        values: dict[Key, Array] = {}
        notes: dict[str, str] = {}
        absent: dict[Key, tuple[int, ...]] = {}
        for key, parts in self.values.items():
            count = 1 if key[1] == "embed" else len(self.sites)
            shape, held = Counter(part.shape for part in parts.values()).most_common(1)[0]
            if 2 * held <= count and key[1] not in ROWS:
                notes.setdefault(
                    key[0], text("note", "shape", site=key[1], count=len(parts), layers=count)
                )
                continue
            alike = {
                layer: part.double().cpu().numpy()
                for layer, part in parts.items()
                if part.shape == shape
            }
            none = np.full(shape, np.nan)
            values[key] = np.concatenate([alike.get(layer, none) for layer in range(count)])[None]
            if held < count:
                absent[key] = tuple(layer + 1 for layer in range(count) if layer not in alike)
                notes.setdefault(key[0], text("note", "site", site=key[1], **_first(absent[key])))
        return values, notes, absent

    def by_stream(self) -> dict[Key, Array]:
        """Mean squared gradients relative to the last layer's, unless that is 0."""
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
        """Norms of the gradients by what the layers learn, of the loss before it was multiplied by
        a scale."""
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
        """Parameters of the matrices whose gradient has been exactly 0 so far, in a layer, and is
        not absent."""
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
        """Takes the gradients after a first step, by the id of the parameter: which matrices have
        waited for it.

        Returns:
            whether there are more than before.
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
        """Norm of the gradient by some parameters together: 0 where none reached them, nan of no
        parameters."""
        parts = [
            piece.of(self.gradients[id(piece.parameter)])
            for piece in pieces
            if id(piece.parameter) in self.gradients
        ]
        return float(np.linalg.norm(norms(parts))) if parts else 0.0 if pieces else np.nan

    def coverage(self) -> Iterator[str]:
        """Sentences on what of the blocks was read, where that is not all."""
        missing = [block.path for block in self.blocks if block.path not in self.layers]
        if missing:
            yield text(
                "coverage",
                "not_run",
                count=len(missing),
                blocks=len(self.blocks),
                paths=listed(missing),
            )
        several = [shapes for shapes in self.several if len(shapes) > 1]
        if several:
            shape, *others = several[0]
            yield text(
                "coverage",
                "streams",
                count=len(several),
                layers=len(self.layers),
                streams=1 + len(others),
                shape=str(shape),
                others=listed(map(str, others)),
            )
        partly = [pair for pair in self.branches if pair[0] > pair[1]]
        if partly:
            (added, numbers), count = Counter(partly).most_common(1)[0]
            yield text(
                "coverage",
                "branches",
                count=count,
                layers=len(self.layers),
                added=added,
                numbers=numbers,
            )
        if (
            self.cut
            and len(self.layers) > 1
            and (cut := [path for path in self.cut if path != self.layers[0]])
        ):
            yield text("coverage", "cut", blocks=listed(cut))

    def unread(self) -> tuple[str, ...]:
        """A sentence for each part of a layer that could not be read, and how many layers it is so
        in."""
        where: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for path, facts in zip(self.layers, self.facts, strict=False):  # named sites have no facts
            for part in facts.get(("layer", "unread"), ()):
                where[part].append(path)
        return tuple(
            text("unread", part, block=paths[0], more=len(paths) - 1, error=why)
            for (part, why), paths in where.items()
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
        """Matrices of the vocabulary that most blocks have, by layer; no pieces where one has
        none."""
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


def almost_zero(x: Tensor) -> Tensor:
    """How many tokens of `[..., coordinate]` are too small for a norm, which multiplies the
    gradient by them."""
    sizes = x.detach().float().square().mean(-1)
    return (sizes < SMALL * sizes.mean()).sum()


def gradient_note(nothing: bool, gates: Sequence[str], small: tuple[int, int]) -> dict[str, str]:
    """The reason why there is no gradient relative to the last layer's, or why that at the input is
    large.

    Args:
        nothing: whether the gradient at the last layer is exactly 0.
        gates: weights after the layers that are 0 and whose gradient is not.
        small: how many tokens of the input are almost 0, and of how many.
    """
    count, tokens = small
    if nothing:
        words = (
            text("note", "first_step", weights=listed(gates))
            if gates
            else text("note", "no_gradient")
        )
    else:
        words = (
            text("note", "zero_tokens" if count > 1 else "zero_token", count=count, tokens=tokens)
            if count
            else ""
        )
    return {"activation_gradient": words} if words else {}


def tokens_note(counts: Sequence[int]) -> dict[str, str]:
    """Why correlations before and after a layer are not of the same tokens, where it changes how
    many there are.

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
    """Has the gradient by a stream kept as a number, once it is known."""
    if node.tensor.requires_grad and not node.followed:
        node.followed = True
        node.tensor.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: node.gradient.append(second_moment(gradient.detach().float()[None])[0])
        )
