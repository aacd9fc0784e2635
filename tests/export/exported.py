"""A file that a test has written and imported, beside the model under study with the same
weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from explorer import PRESETS, Config, preset, torch_code
from explorer.model import Transformer, batch

WRITTEN = [name for name in PRESETS if not preset(name).design.stream.mixes]
"""The named designs that can be written as a file of torch."""


def imported(text: str, folder: Path) -> ModuleType:
    """The text of a design, written to a file and imported from there."""
    path = folder / "design.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("design", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pair:
    """Both models, with weights that are off their start: factors that start at zero, or all alike,
    would hide much."""

    def __init__(self, config: Config, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        ours, generator = Transformer(config, 0), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for path, parameter in ours.named_parameters():
                size = (
                    0.3
                    if parameter.std(correction=0) == 0 or "mix" in path
                    else 0.1 * parameter.std(correction=0)
                )
                parameter += size * torch.randn(parameter.shape, generator=generator)
        theirs: nn.Module = imported(torch_code(config), folder).Transformer()
        theirs.load_state_dict(ours.state_dict())
        self.config, self.ours, self.theirs = config, ours.to(dtype), theirs.to(dtype)
        given = batch.draw(config, 0)
        self.batch = (
            given._replace(input=given.input.to(dtype))
            if given.input.is_floating_point()
            else given
        )

    def outputs(self) -> tuple[Tensor, Tensor]:
        """What both give: streams, or logits where the loss is that of the next character."""
        stream = self.ours(self.ours.embed(self.batch))
        if self.config.loss == "next_token":
            stream = self.ours.logits(stream)
        return self.theirs(self.batch.input), stream

    def agree(self) -> None:
        """Asserts that both outputs are the same to rounding."""
        found, expected = self.outputs()
        assert expected.isfinite().all()
        torch.testing.assert_close(
            found, expected, rtol=1e-5, atol=1e-5 * float(expected.detach().std())
        )

    def agree_backward(self) -> None:
        """Asserts that the gradients of one linear function of the outputs are the same for every
        parameter."""
        for output in (outputs := self.outputs()):
            direction = torch.randn(
                output.shape, generator=torch.Generator().manual_seed(2), dtype=output.dtype
            )
            (output * direction).sum().backward()
        assert len(outputs) == 2
        expected = {name: one.grad for name, one in self.ours.named_parameters()}
        found = {name: one.grad for name, one in self.theirs.named_parameters()}
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            if gradient is not None:  # an earlier output's query that nothing reads
                scale = float(gradient.abs().max())
                torch.testing.assert_close(
                    found[name], gradient, rtol=1e-4, atol=1e-4 * scale, msg=name
                )
