"""Statistics at sites that a person names, for a model whose structure is not understood."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from explorer.probes.blocks import find_blocks
from explorer.probes.calls import Batch, called
from explorer.probes.graph import Node, tensors_in
from explorer.probes.seen import Seen, follow
from explorer.profile import BRANCHES, STREAM

NAMED = (*STREAM, *BRANCHES)


class Sites:
    """Outputs of modules as the sites of one stack.

    Args:
        model: whose modules are meant.
        names: site to the name of its modules, one a layer, in which * stands for anything.
    Raises:
        ValueError: a site is none, has another number of modules than the others, or `resid_post` is not named.
    """

    def __init__(self, model: nn.Module, names: Mapping[str, str]) -> None:
        for site in names:
            if site not in NAMED:
                raise ValueError(f"blocks must name sites of {', '.join(NAMED)}; got {site!r}")
        if "resid_post" not in names:
            raise ValueError(f"blocks must name the modules of resid_post; got {', '.join(names) or 'no site'}")
        self.modules = {site: find_blocks(model, pattern) for site, pattern in names.items()}
        last = self.modules["resid_post"]
        for site, modules in self.modules.items():
            wanted = 1 if site == "embed" else len(last)
            if len(modules) != wanted:
                raise ValueError(f"blocks must name one module a layer; got {len(modules)} of {site} for {wanted}")
        self.seen = Seen(last)
        self.seen.sites, self.seen.layers = [{} for _ in last], [block.path for block in last]

    def run(self, model: nn.Module, batch: Batch) -> Any:
        """The model's output."""
        with ExitStack() as stack:
            for site, modules in self.modules.items():
                for layer, block in enumerate(modules):
                    stack.callback(block.module.register_forward_hook(self.hook(site, layer)).remove)
            output = called(model, batch)
        for site, modules in self.modules.items():
            for layer, block in enumerate(modules):
                if site not in self.seen.sites[layer]:
                    raise ValueError(f"blocks must be run by the model; {block.path} was not")
        return output

    def hook(self, site: str, layer: int) -> Any:
        """What reads one module's output."""
        def read(_: object, __: object, out: Any) -> None:
            tensor = next((one for one in tensors_in((out,)) if one.is_floating_point()), None)
            if tensor is None or site in self.seen.sites[layer]:
                path = self.modules[site][layer].path
                raise ValueError(f"blocks must put out a floating tensor, once; {path} does not")
            self.seen.dtype = str(tensor.dtype).removeprefix("torch.")
            with torch.no_grad():
                self.seen.signal(site, tensor, layer)
            node = self.seen.sites[layer][site] = Node("output", [], tensor, "stream")
            if site in STREAM:
                follow(node)
            if layer == 0:
                self.seen.sources.append(tensor)
            node.tensor = torch.empty(0)

        return read
