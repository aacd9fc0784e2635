"""The tap that reduces: gathers a few layers' tensors, turns them into numbers in one stroke, and lets them go.

At a thousand narrow layers the cost of a reduction is the call, not the arithmetic; stacking a block of layers makes
many small calls few. Wide layers are reduced one by one, while they are still warm in the cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from explorer.config import Config
from explorer.probe import statistics
from explorer.profile import BRANCHES, STREAM, Array, Key

ORDER = STREAM + BRANCHES

BLOCK_ELEMENTS = 2**18
"""A block holds about this many numbers of one site: 1 MB in float32."""


class Recorder:
    """A tap for one pass over one seed; `values()` has the forward statistics once the pass is through.

    Args:
        config: the model's.
        mask: `[query, key]`, true where visible; None when all is.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern is kept.
        after_layer: called with the layer's number when its last site has been seen; what it raises ends the pass.
    """

    def __init__(self, config: Config, mask: Tensor | None, pattern_of: tuple[int, int],
                 after_layer: Callable[[int], None]) -> None:
        self.config, self.mask, self.pattern_of, self.after_layer = config, mask, pattern_of, after_layer
        largest = config.batch_size * config.n_ctx * max(config.d_model, config.n_heads * config.n_ctx)
        self.block = max(1, min(64, BLOCK_ELEMENTS // largest))
        self.pending: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.reduced: defaultdict[Key, list[Tensor]] = defaultdict(list)
        self.pattern: Tensor | None = None

    def __call__(self, site: str, layer: int, tensor: Tensor) -> None:
        """Takes a tensor of the model."""
        self.pending[site].append(tensor)
        if site == "pattern" and layer == self.pattern_of[0]:
            self.pattern = tensor.detach()[0, self.pattern_of[1]].clone()
        if site == "resid_post":
            if layer % self.block == 0 or layer == self.config.n_layers:
                self.flush()
            self.after_layer(layer)

    @torch.no_grad()
    def flush(self) -> None:
        """Reduces the pending tensors and releases them; sites of one shape go together, to make few calls."""
        pending = {site: tensors for site, tensors in self.pending.items() if tensors}
        self.pending = defaultdict(list)
        if "pattern" in pending:
            self.attention(torch.stack(pending.pop("attn_scores")), torch.stack(pending.pop("pattern")))
        sites = sorted(pending, key=ORDER.index)  # the stream's come first
        counts = [len(pending[site]) for site in sites]
        streams = counts[: sum(site in STREAM for site in sites)]
        stacked = torch.stack([tensor for site in sites for tensor in pending[site]])
        q = statistics.second_moment(stacked)
        length = sum(streams)
        correlation = statistics.token_overlap(stacked[:length], q[:length]) / q[:length]
        for site, moments in zip(sites, torch.split(q, counts), strict=True):
            self.keep(site, {"second_moment": moments})
        for site, correlations in zip(sites, torch.split(correlation, streams), strict=False):
            self.keep(site, {"token_correlation": correlations})

    def attention(self, scores: Tensor, pattern: Tensor) -> None:
        """Reduces a block's logits and weights."""
        found = statistics.attention(scores, pattern, self.mask)
        self.keep("attn_scores", {"logit_std": found.pop("logit_std")})
        self.keep("pattern", found)

    def keep(self, site: str, values: dict[str, Tensor]) -> None:
        """Adds a block's numbers, `[layer]` or `[layer, head]`, to the site's."""
        for statistic, value in values.items():
            self.reduced[statistic, site].append(value)

    def values(self) -> dict[Key, Array]:
        """Statistic and site to `[layer]` or `[layer, head]`; this is where the device is waited for."""
        return {key: torch.cat(parts).double().cpu().numpy() for key, parts in self.reduced.items()}
