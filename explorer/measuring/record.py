"""The tap that reduces: gathers a few layers' tensors, turns them into numbers in one stroke, and
lets them go.

At a thousand narrow layers the cost of a reduction is the call, not the arithmetic; stacking a
block of layers makes many small calls few. Wide layers are reduced one by one, while they are still
warm in the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from explorer.config import Config
from explorer.measuring.statistics import Rows, Signal, no_number
from explorer.model import Layer
from explorer.sites import ROWS, TAPS, sites_of
from explorer.vocabulary import STATISTICS, Array, Key

SIGNALS = sites_of("stream", "branch", "inner", "readout")
"""Sites of tensors `[batch, token, features]`, those of a statistic next to each other."""

BLOCK_ELEMENTS = 2**18
"""A block holds about this many numbers of one site: 1 MB in float32."""


class Recorder:
    """A tap for one pass over one seed; `values()` has the forward statistics once the pass is
    through.

    A stream of which no entry is a number leaves nothing to compute: all that comes after it is
    nan. `needed` then leaves out the layers up to the last, whose statistics stand for theirs.

    Args:
        config: the model's.
        mask: `[query, key]`, true where visible; None when all is.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern is kept.
        after_layer: called with the layer's number when its last site has been seen; what it raises
            ends the pass.
        ends: whether the pass goes through the layers that are `needed` alone, and not through all.
        seeds: draws that the model holds side by side; the pattern is the first one's.
        positions: whether statistics by token position are wanted, too.
        readout: from a stream to the output's logits, where the model has such.
    """

    def __init__(
        self,
        config: Config,
        mask: Tensor | None,
        pattern_of: tuple[int, int],
        after_layer: Callable[[int], None],
        ends: bool = False,
        seeds: int = 1,
        positions: bool = True,
        readout: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.config, self.mask, self.pattern_of, self.after_layer = (
            config,
            mask,
            pattern_of,
            after_layer,
        )
        self.readout = readout
        self.positions, self.ends, self.seeds, self.left_out = positions, ends, seeds, range(0)
        """Numbers of the layers that are not needed."""
        largest = (
            seeds
            * config.batch_size
            * config.n_ctx
            * max(config.d_model, config.n_heads * config.n_ctx)
        )
        self.block = max(1, min(64, BLOCK_ELEMENTS // largest))
        self.pending: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.reduced: defaultdict[Key, list[Tensor]] = defaultdict(list)
        self.pattern: Tensor | None = None

    def __call__(self, site: str, layer: int, tensor: Tensor) -> None:
        """Takes a tensor of the model."""
        self.pending[site].append(tensor)
        wanted, head = self.pattern_of
        if site == "pattern" and layer == (
            self.left_out.stop if wanted in self.left_out else wanted
        ):
            self.pattern = tensor.detach()[0, head].clone()
        if site == "resid_post":
            if self.readout is not None:
                with torch.no_grad():
                    self.pending["logits"].append(self.readout(tensor.detach()))
            if layer % self.block == 0 or layer == self.config.n_layers:
                self.flush()
            if self.ends and not self.left_out and no_number(tensor):
                self.left_out = range(layer + 1, self.config.n_layers)
            self.after_layer(layer)

    def needed(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """The layers, as long as there is something to compute, and the last."""
        return (layer for layer in layers if layer.layer not in self.left_out)

    @torch.no_grad()
    def flush(self) -> None:
        """Reduces the pending tensors and releases them; sites of one shape go together, to make
        few calls."""
        pending, self.pending = self.pending, defaultdict(list)
        if pending["pattern"]:
            scores, pattern = (self.stack(pending[site]) for site in ROWS)
            rows = Rows.of(scores, pattern, self.mask, self.config.design.sink.logit is not None)
            self.reduce(rows, dict.fromkeys(ROWS, (0, len(pending["pattern"]))))
        by_shape: defaultdict[torch.Size, list[str]] = defaultdict(list)
        for site in SIGNALS:
            if pending[site]:
                by_shape[pending[site][0].shape].append(site)
        for sites in by_shape.values():
            tensors: list[Tensor] = []
            spans: dict[str, tuple[int, int]] = {}
            for site in sites:
                spans[site] = (len(tensors), len(tensors) + len(pending[site]))
                tensors += pending[site]
            self.reduce(Signal.of(self.stack(tensors)), spans)

    def stack(self, tensors: list[Tensor]) -> Tensor:
        """`[seed · batch, ...]` of each layer to `[layer · seed, batch, ...]`."""
        return torch.stack(tensors).view(len(tensors) * self.seeds, -1, *tensors[0].shape[1:])

    def reduce(self, sample: Signal | Rows, spans: Mapping[str, tuple[int, int]]) -> None:
        """Reduces stacked tensors to the statistics of their sites.

        Args:
            sample: the tensors of all sites, `seeds` rows a layer.
            spans: site to its first layer in the stack, and the one after its last.
        """
        # statistics of the same sites share what they compute
        samples: dict[tuple[int, int], Signal | Rows] = {}
        for row in STATISTICS.values():
            sites = [site for site in row.sites if site in spans]
            if row.reduce is None or not sites or (row.by_position and not self.positions):
                continue
            start = min(spans[site][0] for site in sites)
            stop = max(spans[site][1] for site in sites)
            if (start, stop) not in samples:
                samples[start, stop] = sample.part(start * self.seeds, stop * self.seeds)
            values = row.reduce(samples[start, stop])
            for site in sites:
                first, last = spans[site]
                of_site = values[(first - start) * self.seeds : (last - start) * self.seeds]
                self.reduced[row.name, site].append(of_site)

    def values(self) -> list[dict[Key, Array]]:
        """For each seed, statistic and site to `[layer]` or `[layer, head]`; waits for the
        device."""
        values = {
            key: torch.cat(blocks).double().cpu().numpy() for key, blocks in self.reduced.items()
        }
        return [
            {key: self.of_seed(key, rows, seed) for key, rows in values.items()}
            for seed in range(self.seeds)
        ]

    def of_seed(self, key: Key, rows: Array, seed: int) -> Array:
        """The layers of one seed, whose rows alternate with the other seeds'.

        The layers that were left out, where the signal is nan, are as the last one that was
        computed."""
        layers = rows[seed :: self.seeds]
        if TAPS[key[1]].once:
            return layers
        return np.concatenate([layers, *[layers[-1:]] * len(self.left_out)])
