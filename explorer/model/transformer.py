"""The Transformer under study: attention written out, every choice of `Config` visible, every site
tapped.

It has no learned gains, and biases only where a config draws them: else they are one and zero at
initialization and would only blur what is measured. A tap is a function `(site, layer, tensor)`
that is shown each named tensor as it is made; it must not change it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import text
from explorer.config import Config
from explorer.design import Design
from explorer.model import noise
from explorer.model.attention import Attention, Carried
from explorer.model.batch import Batch
from explorer.model.functions import beside, norm, norms, product
from explorer.model.mlp import MLP
from explorer.model.streams import MIXES
from explorer.model.taps import Tap, ignore
from explorer.schemes.residual import LAST, profiled_factor
from explorer.sites import BRANCHES


class Layer(nn.Module):
    """An attention and an MLP sublayer, each `skip · x + branch · F(x)`, with norms where the
    design has them. Pairs such as `skip` are of attention and of the MLP.

    Args:
        layer: from 1.
        weights: of this layer, by name; of several seeds with an axis of seeds in front.
    """

    def __init__(
        self, design: Design, layer: int, weights: Mapping[str, Tensor], seeds: int = 1
    ) -> None:
        super().__init__()
        self.layer, self.seeds = layer, seeds
        self.attention = Attention(design, layer, weights) if design.attends else None
        self.mlp = MLP(design, layer, weights)
        sublayers = slice(2 * layer - 2, 2 * layer)
        self.normed = [norms(design, sublayer) for sublayer in (2 * layer - 2, 2 * layer - 1)]
        """Normalizes a signal of a sublayer, by its site's name, if the design does."""
        self.scale = [
            place.scale if place.has("input") else 1.0 for place in design.sublayers[sublayers]
        ]
        """Factor on each branch's input after its norm."""
        self.skip: Sequence[float] | Tensor = design.skips[sublayers]
        self.branch = design.branches[sublayers]
        if design.profiled:
            # `Transformer.profile` finds the factors; a buffer moves with the model to a device
            del self.skip
            self.register_buffer("skip", torch.ones(2))
        self.parallel = design.stream.parallel
        self.alpha: nn.Parameter | None = None
        """A learned α: `[]` for both branches, `[branch]` or `[branch, d_model]`; of several seeds
        with their axis in front."""
        if design.alpha_shape is not None:
            shape = axis(seeds) + design.alpha_shape
            self.alpha = nn.Parameter(torch.full(shape, self.branch[0]))
        # parameters by their names in the vocabulary, in plain dicts: quicker to reach than by the
        # modules
        self.weights: dict[str, nn.Parameter] = {}
        self.biases: dict[str, nn.Parameter] = {}
        """Biases, under names that the vocabulary does not have."""
        for path, parameter in self.named_parameters():
            name = path.split(".")[-1]
            (self.biases if name.startswith("b_") else self.weights)[name] = parameter
        self.mix: list[nn.Parameter] = []
        """Learned parameters that mix streams or outputs."""

    def forward(
        self, x: Tensor, tap: Tap = ignore, carried: Carried = ()
    ) -> tuple[Tensor, Carried]:
        """`[batch, token, d_model]` to the same, and what the next layer's attention inherits."""
        before = x
        if self.attention is None:
            x = x.view_as(x)  # a node of its own in autograd's graph, for a gradient of its own
        else:
            out, carried = self.attention(self.branch_input(x, 0), tap, carried)
            x = self.add(x, out, 0, tap)
        tap("resid_mid", self.layer, x)
        out = self.mlp(self.branch_input(before if self.parallel else x, 1))
        x = self.add(x, out, 1, tap)
        tap("resid_post", self.layer, x)
        return x, carried

    def branch_input(self, x: Tensor, branch: int) -> Tensor:
        """The input of a branch, 0 for attention, 1 for the MLP, after its norm and factor."""
        x = self.normed[branch]("input", x)
        return x if self.scale[branch] == 1 else x * self.scale[branch]

    def add(self, x: Tensor, out: Tensor, branch: int, tap: Tap) -> Tensor:
        """The stream after a branch, from its output."""
        return self.normed[branch]("sum", self.join(x, self.leave(out, branch, tap), branch))

    def leave(self, out: Tensor, branch: int, tap: Tap) -> Tensor:
        """The end of a branch: its output, normalized if the design does so, and shown to the tap;
        its multiplier is not in it yet."""
        out = self.normed[branch]("output", out)
        tap(BRANCHES[branch], self.layer, out)
        return out

    def join(self, x: Tensor, out: Tensor, branch: int) -> Tensor:
        """The stream after a branch: `skip · x + branch · F(x)`.

        The branch's multiplier is a number of the design, or the learned α in its place. A stream
        without a skip is the branch alone, which has no α to learn.

        Args:
            x: the stream before, `[batch, token, d_model]`, or `[seed · batch, token, d_model]`.
            out: F(x), shaped as `x`.
            branch: 0 for attention, 1 for the MLP.
        """
        skip, multiplier = self.skip[branch], self.branch[branch]
        # a product with 1 is left out: autograd would keep a tensor for it
        if skip == 0:
            return out * multiplier if multiplier != 1 else out
        stream = x * skip if skip != 1 else x
        if self.alpha is None:
            return torch.add(stream, out, alpha=multiplier)
        return stream + self._learned_multiplier(self.alpha, out, branch) * out

    def _learned_multiplier(self, alpha: Tensor, out: Tensor, branch: int) -> Tensor:
        """The learned α of a branch, shaped so that it multiplies the branch's output.

        Args:
            alpha: `[]` for both branches, `[branch]` or `[branch, d_model]`; of several seeds with
                their axis in front.
            out: the output, `[batch, token, d_model]`, or `[seed · batch, token, d_model]`.
            branch: 0 for attention, 1 for the MLP.
        """
        if self.seeds == 1:
            return alpha if alpha.ndim == 0 else alpha[branch]
        of_branch = alpha if alpha.ndim == 1 else alpha[:, branch]  # [seed], or [seed, d_model]
        # now of each sequence: [seed · batch], or [seed · batch, d_model]
        of_branch = beside(out, of_branch)
        return of_branch[:, None, None] if of_branch.ndim == 1 else of_branch[:, None]


class MixingLayer(Layer):
    """A layer whose branches read a learned mix of streams or of earlier outputs; see `streams`."""

    def __init__(
        self, design: Design, layer: int, weights: Mapping[str, Tensor], seed: int
    ) -> None:
        super().__init__(design, layer, weights)
        self.mixing = MIXES[design.stream.mixes](design, layer, seed)
        self.mix = list(self.mixing.parameters())

    def forward(
        self, x: Tensor, tap: Tap = ignore, carried: Carried = ()
    ) -> tuple[Tensor, Carried]:
        """The shown stream `[batch, token, d_model]` to the same, and what the next layer inherits:
        first what its mixing needs, then attention's."""
        mixing = self.mixing
        passed, carried = carried[: mixing.passed], carried[mixing.passed :]
        if self.attention is None:
            x = x.view_as(x)
            state = mixing.enter(x, passed)
        else:
            mixed, reading = mixing.gather(mixing.enter(x, passed), 0)
            out, carried = self.attention(self.branch_input(mixed, 0), tap, carried)
            x, state, _ = mixing.add(reading, self.leave(out, 0, tap) * self.branch[0])
        tap("resid_mid", self.layer, x)
        mixed, reading = mixing.gather(state, -1)
        out = self.leave(self.mlp(self.branch_input(mixed, 1)), 1, tap)
        x, _, passed = mixing.add(reading, out * self.branch[1])
        tap("resid_post", self.layer, x)
        return x, (*passed, *carried)


class Transformer(nn.Module):
    """The whole stack for one config and one seed.

    Args:
        config: every choice.
        seed: of the noise.
        check: called while weights are drawn; what it raises ends the construction.
        vocabulary: distinct characters of the text; 0 are those of Python's prose.
        masks: whether there is one more symbol, which hides a character.
        seeds: draws that it holds side by side, of this seed and those that follow: see `products`.
            Several are not for designs that mix streams, or find factors in a first pass.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        check: noise.Check = lambda: None,
        vocabulary: int = 0,
        masks: bool = False,
        seeds: int = 1,
    ) -> None:
        super().__init__()
        self.config, self.seeds = config, seeds
        self.design = design = config.design
        weights = draw_together(config, seed, seeds, check)  # [layer, ...], by name
        self.layers = nn.ModuleList()
        for index in range(config.n_layers):
            of_layer = {name: stacked[index] for name, stacked in weights.items()}
            if design.stream.mixes:
                self.layers.append(MixingLayer(design, index + 1, of_layer, seed))
            else:
                self.layers.append(Layer(design, index + 1, of_layer, seeds))
        if design.shared:
            share(list(self.layers), design.unique)
        self.profiled: Tensor | None
        """Whether the factors on the stream are found; None where they are not profiled."""
        self.register_buffer("profiled", torch.tensor(False) if design.profiled else None)
        self.norm = norm(design) if design.final_norm else None
        self.E = self.P = self.W_U = None
        self.vocabulary = vocabulary or len(text.prose().vocabulary)
        """Distinct characters."""
        self.enlarged = design.readout_variance**-0.5 if design.tied else 1.0
        """Factor on the embedding: a tied one is stored with the variance of the readout."""
        width = (config.d_model,)
        if design.reads_text:
            table = noise.several(seed, seeds, "E", self.vocabulary + masks, width)
            self.E = nn.Parameter(table / self.enlarged)
        if design.embeds_positions:
            self.P = nn.Parameter(noise.several(seed, seeds, "P", config.n_ctx, width).clone())
        if design.predicts_text and not design.tied:
            readout = noise.several(seed, seeds, "W_U", self.vocabulary, width)
            self.W_U = nn.Parameter(readout * math.sqrt(design.readout_variance))

    def embed(self, batch: Batch) -> Tensor:
        """The stream before the first layer, `[batch, token, d_model]`, of the config's second
        moment."""
        size = math.sqrt(self.config.input_second_moment)
        x = batch.input
        if self.E is not None:
            x = self.lookup(x, self.E) * (size * self.enlarged)
        if self.P is not None:
            positions = self.P if self.seeds == 1 else beside(x, self.P)
            # the sum of two independent embeddings has twice the second moment
            x = (x + positions * size) / math.sqrt(2)
        if self.profiled is not None and not self.profiled:  # of the first batch alone
            self.profile(x.detach())
            self.profiled.fill_(True)
        return x

    def lookup(self, codes: Tensor, rows: Tensor) -> Tensor:
        """Characters `[batch, token]` to their rows of a table `[character, d_model]`, each seed's
        of its own."""
        if self.seeds > 1:  # the seeds' tables follow each other
            first = torch.arange(self.seeds, device=codes.device) * rows.shape[1]
            codes = codes + beside(codes, first)[:, None]
        return F.embedding(codes, rows.flatten(0, -2))

    @torch.no_grad()
    def profile(self, x: Tensor) -> None:
        """Sets the factors on the stream by one pass of an embedded stream: see
        `residual.profiled_factor`."""
        layers = [layer for layer in self.layers if isinstance(layer, Layer)]
        total = float(x.square().mean())  # of the second moments of embedding and branches so far

        def tap(site: str, layer: int, tensor: Tensor) -> None:
            """Adds a branch's second moment, which decides the factor of the next sublayer."""
            nonlocal total
            if site in BRANCHES:
                total += float(tensor.square().mean())
                sublayer = 2 * layer - 2 + BRANCHES.index(site)
                # where there is no attention, the next sublayer is the second one
                for index in (sublayer + 1, sublayer + 2):
                    if index < 2 * len(layers):
                        skips = torch.as_tensor(layers[index // 2].skip)  # a view of the buffer
                        skips[index % 2] = profiled_factor(index, total)

        self.through(layers, x, tap)

    def forward(self, x: Tensor, tap: Tap = ignore) -> Tensor:
        """The embedded stream `[batch, token, d_model]` to the output of the same shape."""
        tap("embed", 0, x)
        return self.finish(self.through(self.layers, x, tap)[0])

    def through(
        self, layers: Iterable[nn.Module], x: Tensor, tap: Tap = ignore, carried: Carried = ()
    ) -> tuple[Tensor, Carried]:
        """Some of the layers, one after the other: the stream after them, and what the next layer's
        attention inherits."""
        for layer in layers:
            x, carried = layer(x, tap, carried)
        return x, carried

    def finish(self, x: Tensor) -> Tensor:
        """From the last layer's stream to the output."""
        return x if self.norm is None else self.norm(x)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """A scalar: the output's projection on a random direction, or the mean cross-entropy of the
        next character in nats.

        Of several seeds it is the sum of theirs, so that each seed's gradients are its own.
        """
        if not self.design.predicts_text:
            return (output * batch.target).sum()
        logits = self.logits(output).flatten(0, 1)
        return F.cross_entropy(logits, batch.target.flatten()) * self.seeds

    def readout(self, x: Tensor) -> Tensor:
        """From a layer's stream to `logits`, as if it were the last layer's."""
        return self.logits(self.finish(x))

    def logits(self, output: Tensor) -> Tensor:
        """The output `[batch, token, d_model]` of a model that predicts text, to `[batch, token,
        character]`.

        Raises:
            ValueError: the model has no readout.
        """
        readout: Tensor | None = self.W_U
        if self.E is not None and self.design.tied:
            readout = self.E[..., : self.vocabulary, :]  # without the symbol that hides a character
        if readout is None:
            raise ValueError("logits need a readout: a config whose loss is next_token")
        logits, cap = product(output, readout), self.config.output_cap
        return cap * torch.tanh(logits / cap) if cap else logits


def draw_weights(config: Config, seed: int, check: noise.Check = lambda: None) -> dict[str, Tensor]:
    """All matrices of all layers, `[layer, fan_out, fan_in]` each, normal biases and learned sinks:
    noise times scale.

    Under the NTK parametrization the stored weights have unit variance; the scale is in the forward
    pass."""
    design = config.design
    drawn, sink = design.unique, design.sink  # layers that are drawn; others share them or copy
    weights = {
        name: noise.scaled(
            each.stored, seed, name, drawn, (each.fan_out, each.fan_in), config.distribution, check
        )
        for name, each in design.matrices.items()
    }
    for name in LAST:
        if name in weights and design.differs_by_layer:
            variances = torch.tensor(design.factors_by_layer(name))  # [layer]
            weights[name] *= variances.sqrt()[:, None, None]
    for name, variance in design.biases.items():
        bias, width = name.replace("W", "b"), design.matrices[name].fan_out
        weights[bias] = noise.scaled(math.sqrt(variance), seed, bias, drawn, (width,), check=check)
    if sink.std and sink.logit is not None:
        draws = noise.stack(seed, "sink", drawn, (config.n_heads,))
        weights["sink"] = sink.logit + sink.std * draws
    if not design.copied:
        return weights
    copies = config.n_layers // drawn
    return {name: torch.cat([weight] * copies) for name, weight in weights.items()}


def draw_together(config: Config, seed: int, seeds: int, check: noise.Check) -> dict[str, Tensor]:
    """`draw_weights` of a seed; of several that follow each other, `[layer, seed, ...]`.

    Matrices of several are stored by columns: so are the gradients that `bmm` makes, and autograd
    need not copy them."""
    by_seed = [draw_weights(config, number, check) for number in range(seed, seed + seeds)]
    if seeds == 1:
        return by_seed[0]
    together = {}
    for name, weight in by_seed[0].items():
        draws = [weights[name] for weights in by_seed]
        if weight.ndim == 3:  # a matrix; others are vectors of each layer
            together[name] = torch.stack([draw.mT for draw in draws], dim=1).mT
        else:
            together[name] = torch.stack(draws, dim=1)
    return together


def axis(seeds: int) -> tuple[int, ...]:
    """The axis of seeds in a parameter's shape: none for a single seed."""
    return () if seeds == 1 else (seeds,)


def share(layers: Sequence[nn.Module], unique: int) -> None:
    """Gives each layer after the first `unique` ones the parameters of the layer that is so many
    before it."""
    for source, layer in zip(layers, layers[unique:], strict=False):
        for path, parameter in source.named_parameters():
            owner, _, name = path.rpartition(".")
            setattr(layer.get_submodule(owner), name, parameter)
        layer.weights, layer.biases = source.weights, source.biases
