"""Findings over time: where a value first was not finite, logits that grow, and steps too large for the depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import adam, batch, gpt2, loss_of, train
from torch import Tensor, nn

import explorer as ex
from explorer.watching.findings import logits_grow, update_large, update_size
from explorer.watching.readings import Reading


def spoil(part: nn.Module, when: list[bool], value: float = math.nan) -> None:
    """Puts a value into what a module gives, while `when` is true."""

    def hook(_: nn.Module, __: object, out: Tensor) -> Tensor | None:
        return out.masked_fill(torch.arange(out.shape[-1]) == 1, value) if when[0] else None

    part.register_forward_hook(hook)


@pytest.mark.parametrize(("at", "place"), [(3, "h.1"), (4, "h.1.mlp.act")])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_first_value_that_is_not_finite_is_found_at_its_step(at: int, place: str, value: float) -> None:
    """At its block in every step, and at its very module in a step that is read; training goes on."""
    model = gpt2()
    when = [False]
    spoil(model.h[1].mlp.act, when, value)
    watch = ex.watch(model, every=4)
    optimizer = adam(model)
    for step in range(6):
        when[0] = step >= at
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    first = watch.first_nonfinite
    assert first == (at, place, "forward")
    told = watch.diagnose()[0]
    assert told.severity == "bad"
    assert told.meaning == f"A value is not finite from step {at} on."
    assert f"step {at}, forward: the output of {place}" in told.evidence
    assert all(finding.severity != "good" for finding in watch.diagnose())
    if at == 4:
        frame = watch.frame().query("step == 4 and statistic == 'nonfinite' and layer == 2")
        assert float(frame["value"].iloc[0]) > 0


def test_a_gradient_that_is_not_finite_is_found_on_its_way_back() -> None:
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * math.nan

    model = gpt2()
    block = model.h[2]
    inner, when = block.forward, [False]
    block.forward = lambda x, *args, **kwargs: inner(Breaks.apply(x) if when[0] else x, *args, **kwargs)
    watch = ex.watch(model, every=3)
    optimizer = adam(model)
    for step in range(4):
        when[0] = step == 2
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert watch.first_nonfinite == (2, "h.1", "backward")
    assert "the gradient by the output of h.1" in watch.diagnose()[0].evidence


def test_a_run_without_trouble_has_none() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    with pytest.raises(ValueError, match="step must be one that was read: none yet"):
        watch.diagnose()
    train(model, 3, torch.optim.SGD(model.parameters(), lr=1e-3))
    assert watch.first_nonfinite is None
    assert [finding.severity for finding in watch.diagnose()] == ["good"]


def reading(step: int, **values: list[list[float]]) -> Reading:
    sites = {"largest_logit": "attn_scores", "update_ratio": "weight"}
    return Reading(step, {(name, sites[name]): np.array(value) for name, value in values.items()}, {}, "float32")


def test_logits_that_grow_beyond_the_bound_are_named() -> None:
    readings = [reading(step, largest_logit=[[2.0, 3.0], [most, 5.0]]) for step, most in ((0, 4.0), (50, 140.0))]
    told = logits_grow(readings, ("h.0", "h.1"))
    assert told is not None
    assert "layer 2 (h.1), head 0, went from 4 at step 0 to 140 at step 50" in told.evidence
    assert logits_grow(readings[:1], ("h.0", "h.1")) is None
    assert logits_grow(readings[::-1], ("h.0", "h.1")) is None, "they shrink"
    assert logits_grow([readings[0], reading(50, largest_logit=[[99.0, 3.0], [4.0, 5.0]])], ("h.0", "h.1")) is None


def test_relative_updates_are_added_over_the_layers() -> None:
    small, large = reading(0, update_ratio=[0.4, 0.5]), reading(50, update_ratio=[7.0, 5.0])
    assert update_size(small) == pytest.approx(0.9)
    assert update_large([small]) is None
    told = update_large([small, large])
    assert told is not None
    assert "At step 50 the relative updates ‖ΔW‖/‖W‖ of all layers add up to 12" in told.evidence
    assert update_size(reading(0, update_ratio=[math.inf, 0.5])) == 0.5, "a matrix that began at zero"


def test_a_step_above_the_bound_changes_the_output_by_more_than_itself() -> None:
    """And one far below it does not, in the same model."""
    above = []
    for rate in (1e-4, 1e-2, 1e-1, 1.0):
        model = gpt2(n_layers=6)
        watch = ex.watch(model)
        last: list[Tensor] = []
        model.h[-1].register_forward_hook(lambda _, args, out, last=last: last.append(out.detach()))  # type: ignore[misc]
        optimizer = torch.optim.Adam([one for name, one in model.named_parameters() if name.startswith("h.")], lr=rate)
        loss_of(model, batch(0)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model(input_ids=batch(0))
        change = float((last[1] - last[0]).norm() / last[0].norm())
        above.append(update_large(watch.readings) is not None)
        assert change > 1 or not above[-1], f"{rate}: {update_size(watch.readings[0])} changed the output by {change}"
    assert not above[0]
    assert above[-1]
    assert change > 1
