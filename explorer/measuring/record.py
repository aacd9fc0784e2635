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
from explorer.profile import BRANCHES, ROWS, STATISTICS, STREAM, Array, Key

ORDER = STREAM + BRANCHES

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
        tensors: list[Tensor] = []
        spans: dict[str, tuple[int, int]] = {}
        for site in ORDER:
            if pending[site]:
                spans[site] = (len(tensors), len(tensors) + len(pending[site]))
                tensors += pending[site]
        self.reduce(Signal.of(self.stack(tensors)), spans)
        if pending["logits"]:
            self.reduce(
                Signal.of(self.stack(pending["logits"])), {"logits": (0, len(pending["logits"]))}
            )

    def stack(self, tensors: list[Tensor]) -> Tensor:
        """`[seed · batch, ...]` of each layer to `[layer · seed, batch, ...]`."""
        return torch.stack(tensors).view(len(tensors) * self.seeds, -1, *tensors[0].shape[1:])

    def reduce(self, sample: Signal | Rows, spans: Mapping[str, tuple[int, int]]) -> None:
        """Reduces stacked layers to the statistics of their sites, each over the part of the stack
        that it needs."""
        parts: dict[
            tuple[int, int], Signal | Rows
        ] = {}  # statistics of the same sites share what they compute
        for row in STATISTICS.values():
            sites = [site for site in row.sites if site in spans]
            if row.reduce is None or not sites or (row.by_position and not self.positions):
                continue
            start, stop = (
                min(spans[site][0] for site in sites),
                max(spans[site][1] for site in sites),
            )
            if (start, stop) not in parts:
                parts[start, stop] = sample.part(start * self.seeds, stop * self.seeds)
            values = row.reduce(parts[start, stop])
            for site in sites:
                first, last = spans[site]
                self.reduced[row.name, site].append(
                    values[(first - start) * self.seeds : (last - start) * self.seeds]
                )

    def values(self) -> list[dict[Key, Array]]:
        """For each seed, statistic and site to `[layer]` or `[layer, head]`; waits for the
        device."""
        values = {
            key: torch.cat(parts).double().cpu().numpy() for key, parts in self.reduced.items()
        }
        last = dict.fromkeys((key for key in values if key[1] != "embed"), len(self.left_out))
        return [
            {
                key: np.concatenate(
                    [part := column[seed :: self.seeds], *[part[-1:]] * last.get(key, 0)]
                )
                for key, column in values.items()
            }
            for seed in range(self.seeds)
        ]
