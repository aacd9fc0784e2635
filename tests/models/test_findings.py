"""Findings over time: where a value first was not finite, logits that grow, and steps too large for
the depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_models import (
    HEADS,
    TOKENS,
    WIDTH,
    WORDS,
    Encoder,
    adam,
    batch,
    gpt2,
    llama,
    loss_of,
    train,
)
from torch import Tensor, nn

import explorer as ex
from explorer_models.findings import jumps, logits_grow, update_large, update_size
from explorer_models.readings import Reading


def spoil(part: nn.Module, when: list[bool], value: float = math.nan) -> None:
    """Puts a value into what a module gives, while `when` is true."""

    def hook(_: nn.Module, __: object, out: Tensor) -> Tensor | None:
        return out.masked_fill(torch.arange(out.shape[-1]) == 1, value) if when[0] else None

    part.register_forward_hook(hook)


@pytest.mark.parametrize(("at", "value"), [(3, math.nan), (4, math.inf)])
def test_the_first_value_that_is_not_finite_is_found_at_its_step(at: int, value: float) -> None:
    """At its very module, in a step that is read and between two; training goes on."""
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
    place = "h.1.mlp.act"
    assert watch.first_nonfinite == (at, place, "forward")
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
    block.forward = lambda x, *args, **kwargs: inner(
        Breaks.apply(x) if when[0] else x, *args, **kwargs
    )
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
    arrays = {(name, sites[name]): np.array(value) for name, value in values.items()}
    return Reading(
        step,
        arrays,
        {key: np.full(value.shape, True) for key, value in arrays.items()},
        "float32",
        {},
    )


def test_logits_that_grow_beyond_the_bound_are_named() -> None:
    readings = [
        reading(step, largest_logit=[[2.0, 3.0], [most, 5.0]])
        for step, most in ((0, 4.0), (50, 140.0))
    ]
    told = logits_grow(readings, ("h.0", "h.1"))
    assert told is not None
    assert "layer 2 (h.1), head 0, went from 4 at step 0 to 140 at step 50" in told.evidence
    assert logits_grow(readings[:1], ("h.0", "h.1")) is None
    assert logits_grow(readings[::-1], ("h.0", "h.1")) is None, "they shrink"
    assert (
        logits_grow(
            [readings[0], reading(50, largest_logit=[[99.0, 3.0], [4.0, 5.0]])], ("h.0", "h.1")
        )
        is None
    )


def test_relative_updates_are_added_over_the_layers() -> None:
    small, large = reading(0, update_ratio=[0.4, 0.5]), reading(50, update_ratio=[7.0, 5.0])
    assert update_size(small) == pytest.approx(0.9)
    assert update_large([small]) is None
    told = update_large([small, large])
    assert told is not None
    assert "At step 50 the relative updates ‖ΔW‖/‖W‖ of all layers add up to 12" in told.evidence
    assert update_size(reading(0, update_ratio=[math.inf, 0.5])) == 0.5, (
        "a matrix that began at zero"
    )


def test_a_step_above_the_bound_changes_the_output_by_more_than_itself() -> None:
    """And one far below it does not, in the same model."""
    above = []
    for rate in (1e-4, 1e-2, 1e-1, 1.0):
        model = gpt2(n_layers=6)
        watch = ex.watch(model)
        last: list[Tensor] = []
        model.h[-1].register_forward_hook(lambda _, args, out, last=last: last.append(out.detach()))  # type: ignore[misc]
        optimizer = torch.optim.Adam(
            [one for name, one in model.named_parameters() if name.startswith("h.")], lr=rate
        )
        loss_of(model, batch(0)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model(input_ids=batch(0))
        change = float((last[1] - last[0]).norm() / last[0].norm())
        above.append(update_large(watch.readings) is not None)
        assert change > 1 or not above[-1], (
            f"{rate}: {update_size(watch.readings[0])} changed the output by {change}"
        )
    assert not above[0]
    assert above[-1]
    assert change > 1


def plain(n_layers: int = 4, **choices: Any) -> nn.Module:
    """GPT-2 as it is drawn."""
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2Model(
        transformers.GPT2Config(
            n_layer=n_layers,
            n_embd=WIDTH,
            n_head=HEADS,
            n_positions=TOKENS,
            vocab_size=WORDS,
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **choices,
        )
    )
    return model


def watched(
    model: nn.Module,
    steps: int,
    every: int,
    then: Callable[[nn.Module, int], None] = lambda *_: None,
    optimizer: torch.optim.Optimizer | None = None,
) -> ex.Watch:
    watch = ex.watch(model, every=every)
    optimizer = optimizer or adam(model)
    for step in range(steps):
        then(model, step)
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return watch


def at(
    step: int, name: str, act: Callable[[nn.Module], object]
) -> Callable[[nn.Module, int], None]:
    return lambda model, now: act(model.get_submodule(name)) if now == step else None  # type: ignore[return-value]


def times(factor: float) -> Callable[[nn.Module], object]:
    return lambda part: part.weight.data.mul_(factor)


JUMPS = [
    (300.0, 1, ("h.1.mlp.c_proj", 2)),
    (30.0, 4, ("h.0.attn.c_attn", 1)),
    (5.0, 10, ("h.3.mlp.c_fc", 4)),
    (0.03, 1, ("h.3.mlp.c_fc", 4)),
]
"""By step 20 Adam has drawn again what was small at step 12."""


@pytest.mark.parametrize(("factor", "every", "place"), JUMPS)
def test_a_matrix_that_jumps_is_named_with_its_layer_and_step(
    factor: float, every: int, place: tuple[str, int]
) -> None:
    name, layer = place
    found = watched(plain(), 24, every, at(12, name, times(factor))).diagnose()
    step = {1: "at step 12", 4: "between steps 8 and 12", 10: "between steps 10 and 20"}[every]
    matrix = f"{name.split('.', 2)[2]}.weight in layer {layer} (h.{layer - 1})"
    assert found[0].meaning == f"A jump {step}: {matrix}."
    assert f"The norm of {matrix} goes from" in found[0].evidence
    assert all(
        "nitializ" not in one.meaning + one.evidence and "Draw the" not in one.remedy
        for one in found
    )


def test_a_branch_that_is_multiplied_is_found_in_the_stream() -> None:
    def louder(part: nn.Module) -> None:
        part.register_forward_hook(lambda _, __, out: 100 * out)

    found = watched(plain(), 24, 4, at(12, "h.2.mlp", louder)).diagnose()
    assert found[0].meaning == "A jump between steps 8 and 12: layer 3 (h.2)."
    assert "The second moment after layer 3 (h.2) goes from" in found[0].evidence


@pytest.mark.parametrize(("dead", "every"), [("output", 1), ("units", 4), ("weights", 4)])
def test_a_branch_that_dies_is_named_with_its_step(dead: str, every: int) -> None:
    def kill(model: nn.Module, step: int) -> None:
        part = model.h[1].mlp
        if step == 8 and dead == "output":
            part.register_forward_hook(lambda _, __, out: 0 * out)
        if step == 8 and dead == "units":
            part.c_fc.bias.data.fill_(-1e4)
        if step >= 8 and dead == "weights":
            part.c_proj.weight.data.zero_()

    first = watched(plain(), 20, every, kill).diagnose()[0]
    assert first.severity == "bad"
    assert first.meaning.startswith("From step 8 on no gradient reaches mlp.c_fc.weight")
    assert "layer 2 (h.1)" in first.meaning
    assert "exactly 0" in first.evidence


@pytest.mark.parametrize(
    ("make", "rate", "every"),
    [(plain, 3e-2, 5), (llama, 1e-3, 1), (Encoder, 3e-2, 10)],
)
def test_no_jump_is_seen_in_a_healthy_run(
    make: Callable[[], nn.Module], rate: float, every: int
) -> None:
    model = make()
    watch = watched(model, 30, every, optimizer=torch.optim.AdamW(model.parameters(), lr=rate))
    assert jumps(watch.readings, watch.layers) is None


def test_words_about_initialization_stand_at_the_first_step_alone() -> None:
    """One-hot attention, from the start: the same finding, without what was tried of untrained
    models."""
    model = gpt2()
    for block in model.h:
        block.attn.c_attn.weight.data.mul_(20.0)
    watch = watched(model, 1, 1)
    assert "starts close to one-hot" in watch.diagnose()[0].meaning
    later = watched(model, 3, 1).diagnose()
    assert later[0].meaning.startswith("Attention is close to one-hot: ")
    assert later[0].evidence.startswith("At step 2: ")
    assert all("models" not in one.evidence and "nitializ" not in str(one) for one in later)


def test_what_is_not_finite_between_the_modules_is_said_of_the_block() -> None:
    model = gpt2()
    block, when = model.h[1], [False]
    inner = block.forward
    block.forward = lambda x, *args, **kwargs: (
        inner(x, *args, **kwargs) * (math.nan if when[0] else 1.0)
    )

    def spoiled(_: nn.Module, step: int) -> None:
        when[0] = step == 3

    assert watched(model, 5, 4, spoiled).first_nonfinite == (3, "h.1", "forward")


def test_looking_for_the_module_changes_nothing() -> None:
    """Random numbers, buffers and caches are what they are without it."""
    states = []
    for every in (2, 100):
        model = gpt2(dropout=0.1).train()
        model.h[2].register_buffer("count", torch.zeros(()))
        model.h[2].register_forward_hook(lambda part, _, __: part.count.add_(1.0) and None)
        when = [False]
        spoil(model.h[1].mlp.act, when, math.inf)
        torch.manual_seed(1)

        def spoiled(_: nn.Module, step: int, when: list[bool] = when) -> None:
            when[0] = step == 1

        watch = watched(model, 3, every, spoiled)
        assert watch.first_nonfinite == (1, "h.1.mlp.act", "forward")
        states.append((torch.get_rng_state(), model.h[2].count))
    assert torch.equal(states[0][0], states[1][0])
    assert states[0][1] == states[1][1] == 3


class Classifier(nn.Module):
    """GPT-2's own blocks after a token of zeros, and a readout of zeros."""

    def __init__(self, readout: float = 0.0, token: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        self.body = gpt2()
        self.token, self.head = (
            nn.Parameter(token * torch.randn(WIDTH)),
            nn.Linear(WIDTH, 5, bias=bias),
        )
        nn.init.normal_(self.head.weight, std=readout)

    def forward(self, words: Tensor) -> Tensor:
        first = self.token.expand(len(words), 1, WIDTH)
        x = torch.cat([first, self.body.wte(words[:, 1:])], 1)
        for block in self.body.h:  # type: ignore[union-attr]
            x = block(x)
            x = x if isinstance(x, Tensor) else x[0]
        out: Tensor = self.head(self.body.ln_f(x))
        return out


def loss_by_class(out: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out.flatten(0, 1), torch.arange(len(out) * TOKENS) % 5)


def trained_and_read(model: nn.Module, steps: int = 1, parts: int = 1) -> ex.Watch:
    """A training of some steps with gradients accumulated over parts of the batch, each step
    read."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ex.watch(model, every=1) as watch:
        for _ in range(steps):
            for words in batch(0).chunk(parts):
                loss_by_class(model(words)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
    return watch


@pytest.mark.parametrize(
    ("choices", "parts"), [({}, 1), ({"bias": True}, 2), ({"token": 1.0}, 1), ({"readout": 1.0}, 2)]
)
def test_zero_readouts_and_zero_tokens_are_told_as_a_probe_tells_them(
    choices: dict[str, Any], parts: int
) -> None:
    model = Classifier(**choices)
    probed = ex.probe(model, batch(0), loss_by_class)
    watch = trained_and_read(Classifier(**choices), parts=parts)
    assert watch.profile().notes == {
        key: note for key, note in probed.notes.items() if key == "activation_gradient"
    }
    assert bool(watch.profile().notes) == (
        choices.get("readout", 0) == 0 or choices.get("token", 0) == 0
    )
    ours, theirs = (
        {
            (one.severity, one.meaning, one.remedy)
            for one in found
            if "almost 0" in one.meaning or "first step" in one.meaning
        }
        for found in (watch.diagnose(), ex.diagnose(probed))
    )
    assert ours == theirs
    assert len(ours) == bool(watch.profile().notes)


def test_after_the_first_step_of_a_zero_readout_all_learn() -> None:
    watch = trained_and_read(Classifier(token=1.0), steps=2)
    assert ("activation_gradient", "embed") not in watch.profile(0)
    assert ("activation_gradient", "embed") in watch.profile(1)
    assert not watch.profile(1).notes
    assert all(one.severity != "bad" for one in watch.diagnose())
    frozen = Classifier(token=1.0)
    frozen.head.weight.requires_grad_(False)
    reason = "the gradient at the last layer is exactly 0"
    assert trained_and_read(frozen).profile().notes == {"activation_gradient": reason}
