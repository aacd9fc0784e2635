"""The Transformer under study: attention written out, every choice of `Config` visible, every site
tapped.

It has no learned gains, and biases only where a config draws them: else they are one and zero at
initialization and would only blur what is measured. A tap is a function `(site, layer, tensor)`
that is shown each named tensor as it is made; it must not change it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import text
from explorer.config import Config
from explorer.design import Design
from explorer.model import noise
from explorer.model.attention import Attention, Carried, Tap
from explorer.model.batch import Batch
from explorer.model.functions import beside, norm, norms, product
from explorer.model.mlp import MLP
from explorer.model.streams import MIXES
from explorer.profile import BRANCHES
from explorer.schemes.residual import LAST, profiled_factor


def ignore(site: str, layer: int, tensor: Tensor) -> None:
    """The tap of a bare pass."""


class Layer(nn.Module):
    """An attention and an MLP sublayer, each `skip · x + branch · F(x)`, with norms where the
    design has them."""

    def __init__(
        self, design: Design, layer: int, weights: Mapping[str, Tensor], seeds: int = 1
    ) -> None:
        super().__init__()
        self.layer, self.seeds = layer, seeds
        self.attention = Attention(design, layer, weights) if design.attends else None
        self.mlp = MLP(design, layer, weights)
        sublayers, shape = slice(2 * layer - 2, 2 * layer), design.alpha_shape
        self.normed = [norms(design, sublayer) for sublayer in (2 * layer - 2, 2 * layer - 1)]
        self.scale = [
            place.scale if place.has("input") else 1.0 for place in design.sublayers[sublayers]
        ]
        """Factor on each branch's input after its norm."""
        self.skip: Sequence[float] | Tensor = design.skips[sublayers]
        self.branch = design.branches[sublayers]
        if design.profiled:
            del self.skip
            self.register_buffer("skip", torch.ones(2))
        self.parallel = design.stream.parallel
        self.alpha = (
            None if shape is None else nn.Parameter(torch.full(axis(seeds) + shape, self.branch[0]))
        )
        # Every parameter by its name in the vocabulary, in a plain dict: quicker to reach than
        # through the modules.
        named = {name.split(".")[-1]: parameter for name, parameter in self.named_parameters()}
        self.biases = {
            name: parameter for name, parameter in named.items() if name.startswith("b_")
        }
        """Biases, under names that the vocabulary does not have."""
        self.weights = {
            name: parameter for name, parameter in named.items() if not name.startswith("b_")
        }
        self.mix: list[nn.Parameter] = []
        """Learned parameters that mix streams or outputs."""

    def forward(
        self, x: Tensor, tap: Tap = ignore, carried: Carried = ()
    ) -> tuple[Tensor, Carried]:
        """`[batch, token, d_model]` to the same, and what the next layer's attention inherits."""
        before = x
        if self.attention is None:
            x = x.view_as(x)  # a place of its own in autograd's graph, for a gradient of its own
        else:
            out, carried = self.attention(self.branch_input(x, 0), tap, carried)
            x = self.add(x, out, 0, tap)
        tap("resid_mid", self.layer, x)
        x = self.add(x, self.mlp(self.branch_input(before if self.parallel else x, 1)), 1, tap)
        tap("resid_post", self.layer, x)
        return x, carried

    def branch_input(self, x: Tensor, branch: int) -> Tensor:
        """Input of a branch, 0 for attention, 1 for the MLP."""
        x = self.normed[branch]("input", x)
        return x if self.scale[branch] == 1 else x * self.scale[branch]

    def add(self, x: Tensor, out: Tensor, branch: int, tap: Tap) -> Tensor:
        """The stream after a branch, from its output."""
        return self.normed[branch]("sum", self.join(x, self.leave(out, branch, tap), branch))

    def leave(self, out: Tensor, branch: int, tap: Tap) -> Tensor:
        """A branch's term of the sum without its multiplier, from its output."""
        out = self.normed[branch]("output", out)
        tap(BRANCHES[branch], self.layer, out)
        return out

    def join(self, x: Tensor, out: Tensor, branch: int) -> Tensor:
        """`skip · x + branch · F(x)`; without a skip the stream is the branch alone."""
        skip, factor = self.skip[branch], self.branch[branch]
        if skip == 0:
            return out * factor if factor != 1 else out
        stream = x * skip if skip != 1 else x
        if self.alpha is None:
            return torch.add(stream, out, alpha=factor)
        if self.seeds == 1:
            return stream + (self.alpha if self.alpha.ndim == 0 else self.alpha[branch]) * out
        alpha = beside(out, self.alpha if self.alpha.ndim == 1 else self.alpha[:, branch])
        return stream + (alpha[:, None, None] if alpha.ndim == 1 else alpha[:, None]) * out


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
        """The shown stream to the same; what is passed on begins with what mixing needs."""
        mixing, passed, carried = (
            self.mixing,
            carried[: self.mixing.passed],
            carried[self.mixing.passed :],
        )
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
        weights = draw_together(config, seed, seeds, check)
        layer = (
            partial(MixingLayer, seed=seed) if design.stream.mixes else partial(Layer, seeds=seeds)
        )
        self.layers = nn.ModuleList(
            layer(design, index + 1, {name: stacked[index] for name, stacked in weights.items()})
            for index in range(config.n_layers)
        )
        if design.shared:
            share(list(self.layers), design.unique)
        self.profiled: Tensor | None
        """Whether the factors on the stream are found; None where they are not profiled."""
        self.register_buffer("profiled", torch.tensor(False) if design.profiled else None)
        self.norm = norm(design) if design.final_norm else None
        self.E = self.P = self.W_U = None
        vocabulary, width = vocabulary or len(text.prose().vocabulary), (config.d_model,)
        self.vocabulary, self.enlarged = (
            vocabulary,
            design.readout_variance**-0.5 if design.tied else 1.0,
        )
        """Distinct characters, and the factor on the embedding, which is stored as the readout that
        it may be."""
        if design.reads_text:
            self.E = nn.Parameter(
                noise.several(seed, seeds, "E", vocabulary + masks, width) / self.enlarged
            )
        if design.embeds_positions:
            self.P = nn.Parameter(noise.several(seed, seeds, "P", config.n_ctx, width).clone())
        if design.predicts_text and not design.tied:
            readout = noise.several(seed, seeds, "W_U", vocabulary, width)
            self.W_U = nn.Parameter(readout * math.sqrt(design.readout_variance))

    def embed(self, batch: Batch) -> Tensor:
        """The stream before the first layer, `[batch, token, d_model]`, of the config's second
        moment."""
        size = math.sqrt(self.config.input_second_moment)
        x = (
            batch.input
            if self.E is None
            else self.lookup(batch.input, self.E) * (size * self.enlarged)
        )
        if self.P is not None:
            x = (x + (self.P if self.seeds == 1 else beside(x, self.P)) * size) / math.sqrt(2)
        if self.profiled is not None and not self.profiled:
            self.profile(x.detach())
            self.profiled.fill_(True)
        return x

    def lookup(self, codes: Tensor, rows: Tensor) -> Tensor:
        """Characters `[batch, token]` to their rows of a table."""
        if self.seeds > 1:  # the seeds' tables follow each other
            first = torch.arange(self.seeds, device=codes.device) * rows.shape[1]
            codes = codes + beside(codes, first)[:, None]
        return F.embedding(codes, rows.flatten(0, -2))

    @torch.no_grad()
    def profile(self, x: Tensor) -> None:
        """Sets the factors on the stream by one pass of an embedded stream: see
        `residual.profiled_factor`."""
        total, layers = (
            float(x.square().mean()),
            [layer for layer in self.layers if isinstance(layer, Layer)],
        )

        def tap(site: str, layer: int, tensor: Tensor) -> None:
            nonlocal total
            if site in BRANCHES:
                total += float(tensor.square().mean())
                below = 2 * layer - 2 + BRANCHES.index(site)
                # the second is next where there is no attention
                for index in (
                    below + 1,
                    below + 2,
                ):
                    if index < 2 * len(layers):
                        torch.as_tensor(layers[index // 2].skip)[index % 2] = profiled_factor(
                            index, total
                        )

        self.through(layers, x, tap)

    def forward(self, x: Tensor, tap: Tap = ignore) -> Tensor:
        """The embedded stream `[batch, token, d_model]` to the output of the same shape."""
        tap("embed", 0, x)
        return self.finish(self.through(self.layers, x, tap)[0])

    def through(
        self, layers: Iterable[nn.Module], x: Tensor, tap: Tap = ignore, carried: Carried = ()
    ) -> tuple[Tensor, Carried]:
        """Some of the layers, one after the other: the stream and the values that attention passes
        on."""
        for layer in layers:
            x, carried = layer(x, tap, carried)
        return x, carried

    def finish(self, x: Tensor) -> Tensor:
        """From the last layer's stream to the output."""
        return x if self.norm is None else self.norm(x)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """A scalar: the output's projection on a random direction, or the mean cross-entropy of the
        next character.

        Of several seeds, the sum.
        """
        if not self.design.predicts_text:
            return (output * batch.target).sum()
        return (
            F.cross_entropy(self.logits(output).flatten(0, 1), batch.target.flatten()) * self.seeds
        )

    def readout(self, x: Tensor) -> Tensor:
        """From a layer's stream to `logits`, as if it were the last layer's."""
        return self.logits(self.finish(x))

    def logits(self, output: Tensor) -> Tensor:
        """The output `[batch, token, d_model]` of a model that predicts text, to `[batch, token,
        character]`."""
        readout = (
            self.W_U
            if self.E is None or not self.design.tied
            else self.E[..., : self.vocabulary, :]
        )
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
    drawn, rule = design.unique, design.sink
    weights = {
        name: noise.scaled(
            each.stored, seed, name, drawn, (each.fan_out, each.fan_in), config.distribution, check
        )
        for name, each in design.matrices.items()
    }
    for name in LAST:
        if name in weights and design.differs_by_layer:
            weights[name] *= torch.tensor(design.factors_by_layer(name)).sqrt()[:, None, None]
    for name, variance in design.biases.items():
        bias, width = name.replace("W", "b"), design.matrices[name].fan_out
        weights[bias] = noise.scaled(math.sqrt(variance), seed, bias, drawn, (width,), check=check)
    if rule.std and rule.logit is not None:
        weights["sink"] = rule.logit + rule.std * noise.stack(
            seed, "sink", drawn, (config.n_heads,)
        )
    if not design.copied:
        return weights
    return {
        name: torch.cat([weight] * (config.n_layers // drawn)) for name, weight in weights.items()
    }


def draw_together(config: Config, seed: int, seeds: int, check: noise.Check) -> dict[str, Tensor]:
    """`draw_weights` of a seed; of several that follow each other, `[layer, seed, ...]`.

    Matrices are stored by columns then: so are the gradients that `bmm` makes, and autograd need
    not copy them."""
    each = [draw_weights(config, number, check) for number in range(seed, seed + seeds)]
    if seeds == 1:
        return each[0]
    return {
        name: torch.stack([weights[name].mT for weights in each], dim=1).mT
        if whole.ndim == 3
        else torch.stack([weights[name] for weights in each], dim=1)
        for name, whole in each[0].items()
    }


def axis(seeds: int) -> tuple[int, ...]:
    """The seeds' axis of a parameter's shape: none for one."""
    return () if seeds == 1 else (seeds,)


def share(layers: Sequence[nn.Module], unique: int) -> None:
    """Gives all layers the parameters of the first ones, in their order."""
    for first, layer in zip(layers, layers[unique:], strict=False):
        for name, parameter in first.named_parameters():
            owner, _, last = name.rpartition(".")
            setattr(layer.get_submodule(owner), last, parameter)
        layer.weights, layer.biases = first.weights, first.biases
