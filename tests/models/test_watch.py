"""Watching alters nothing, counts what users mean by a step, and goes without a trace."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import LAYERS, Encoder, adam, batch, gpt2, llama, loss_of, train
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer
from torch.utils.checkpoint import checkpoint

import explorer as ex


def steps(watch: ex.Watch) -> list[int]:
    return [reading.step for reading in watch.readings]


def hooks(model: nn.Module) -> int:
    """How many hooks there are on a model, and on all optimizers."""
    kinds = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_always_called",
    )
    everywhere = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    return sum(len(getattr(part, kind)) for part in model.modules() for kind in kinds) + sum(
        map(len, everywhere)
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: gpt2(dropout=0.1),
        lambda: gpt2("eager"),
        llama,
        lambda: Encoder(dropout=0.1),
    ],
    ids=["gpt2 with dropout", "gpt2 eager", "llama", "encoder with dropout"],
)
def test_training_is_bit_for_bit_what_it_was(build: Callable[[], nn.Module]) -> None:
    found = []
    for watched in (False, True):
        model = build()
        watch = ex.watch(model, every=2) if watched else None
        torch.manual_seed(1)
        losses = train(model, 4)
        found.append(
            [
                *model.parameters(),
                *(one.grad for one in model.parameters()),
                torch.tensor(losses),
                torch.get_rng_state(),
            ]
        )
        assert watch is None or steps(watch) == [0, 2]
    for plain, seen in zip(*found, strict=True):
        assert (plain is None and seen is None) or torch.equal(plain, seen)


def test_removal_leaves_no_hook_and_what_was_read() -> None:
    model = gpt2()
    gc.collect()  # watches of other tests, whose models are gone
    ex.watch(model).remove()
    before = hooks(model)
    watch = ex.watch(model, every=2)
    assert hooks(model) > before
    train(model, 2)
    watch.remove()
    assert hooks(model) == before
    watch.remove()
    train(model, 4)
    assert steps(watch) == [0]
    assert len(watch.frame())
    with pytest.raises(ZeroDivisionError), ex.watch(model):
        1 / 0  # noqa: B018
    assert hooks(model) == before


def test_a_pass_that_fails_leaves_no_mode_and_no_count() -> None:
    class Fails(nn.Module):
        def forward(self, *_: object) -> Tensor:
            raise RuntimeError("out of memory")

    model = gpt2()
    watch = ex.watch(model)
    mlp, model.h[1].mlp = model.h[1].mlp, Fails()
    with pytest.raises(RuntimeError, match="out of memory"):
        model(input_ids=batch(0))
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert torch.overrides._get_current_function_mode() is None
    model.h[1].mlp = mlp
    train(model, 1)
    assert steps(watch) == [0]


def test_a_model_that_is_let_go_is_let_go() -> None:
    gc.collect()
    model = gpt2()
    ex.watch(model)
    train(model, 1)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_model_may_be_let_go_while_another_one_steps() -> None:
    """Torch goes through its hooks on all optimizers, and must not find one missing."""
    models = [gpt2(), gpt2()]

    def let_go(*_: object) -> None:
        models[1:] = []
        gc.collect()

    handle = torch_optimizer.register_optimizer_step_pre_hook(let_go)
    assert len([ex.watch(model) for model in models]) == len(models)
    try:
        train(models[0], 1)
    finally:
        handle.remove()


def test_passes_without_gradients_or_in_evaluation_mode_are_no_readings() -> None:
    frames = []
    for validated in (False, True):
        model = gpt2()
        watch = ex.watch(model)
        optimizer = adam(model)
        if validated:
            with torch.no_grad():
                model(input_ids=batch(7))
            model.eval()
            model(input_ids=batch(8))
            model.train()
        train(model, 1, optimizer)
        frames.append(watch.frame())
    assert frames[0].equals(frames[1])
    watch = ex.watch(model, evaluation=True)
    model.eval()
    train(model, 1)
    assert "second_moment" in set(watch.frame()["statistic"])


def test_a_model_trained_in_evaluation_mode_is_told_how_to_be_read() -> None:
    model = gpt2().eval()
    watch = ex.watch(model)
    with pytest.warns(
        UserWarning, match="no pass was seen in training mode; evaluation=True reads every pass"
    ):
        train(model, 1)
    assert set(watch.frame()["statistic"]) == {
        "parameter_gradient",
        "update_ratio",
        "weight_norm",
        "gradient_cosine",
        "update_cosine",
    }


def test_two_watches_read_the_same() -> None:
    model = gpt2()
    one, two = ex.watch(model), ex.watch(model, every=2)
    train(model, 3)
    assert steps(one) == [0]
    assert steps(two) == [0, 2]
    assert one.frame().equals(two.frame().query("step == 0"))
    one.remove()
    train(model, 2)
    assert steps(two) == [0, 2, 4]


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
    ids=["deepcopy", "pickle"],
)
def test_a_copy_of_a_watched_model_is_not_watched(copied: Callable[[Any], Any]) -> None:
    model = gpt2()
    watch = ex.watch(model)
    other = copied(model)
    train(other, 2)
    assert steps(watch) == []
    train(model, 1)
    assert steps(watch) == [0]
    whole = io.BytesIO()
    torch.save(model, whole)
    assert b"explorer" not in whole.getvalue(), "what reads the file would need this package"


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_not_counted_twice(reentrant: bool) -> None:
    def checkpointed(block: nn.Module) -> None:
        inner = block.forward
        block.forward = lambda x, *args, **kwargs: checkpoint(  # type: ignore[method-assign]
            lambda x: inner(x, *args, **kwargs), x, use_reentrant=reentrant
        )

    class Outside(nn.Module):
        """Checkpoints whole blocks, hooks and all."""

        def __init__(self, encoder: Encoder) -> None:
            super().__init__()
            self.inner = encoder

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.inner.embedding(input_ids)
            for layer in self.inner.encoder.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    frames = []
    for wrap in (False, True):
        model = Encoder()
        watch = ex.watch(Outside(model) if wrap else model)
        train(watch.model, 1)
        frames.append(watch.frame()[["layer", "head", "statistic", "value"]])
    plain, again = (
        frame.sort_values(["statistic", "layer", "head", "value"], ignore_index=True)
        for frame in frames
    )
    assert plain.equals(again)


def test_a_step_is_the_optimizers() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    train(gpt2(), 3)  # another model's optimizer
    assert steps(watch) == []
    train(model, 3)
    assert steps(watch) == [0, 2]


def test_a_step_by_hand_is_counted_once() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    optimizer = adam(model)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        watch.step()
    assert steps(watch) == [0, 2]


def test_a_loop_without_an_optimizer_says_when_a_step_ends() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    for step in range(3):
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * (0 if parameter.grad is None else parameter.grad)
        watch.step()
        model.zero_grad()
    assert steps(watch) == [0, 2]
    assert {"second_moment", "parameter_gradient"} <= set(watch.frame()["statistic"])
    for step in (3, 4):
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        if step == 3:
            watch.step()
        model.zero_grad()
    with pytest.warns(
        UserWarning,
        match=r"step 4: no gradients are left: call step\(\) before they are set to zero",
    ):
        watch.step()


def test_two_optimizers_make_one_step() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    matrices = [one for one in model.parameters() if one.ndim > 1]
    pair = [
        torch.optim.SGD(matrices, lr=0.1),
        torch.optim.SGD([one for one in model.parameters() if one.ndim < 2]),
    ]
    for step in range(3):
        model.zero_grad()
        loss_of(model, batch(step)).backward()  # type: ignore[no-untyped-call]
        for optimizer in pair:
            optimizer.step()
    assert steps(watch) == [0, 2]
    frame = watch.frame().query("statistic == 'update_ratio' and layer > 0")
    assert len(frame) == 2 * 4 * LAYERS


def test_part_of_a_model_is_stepped() -> None:
    """Parameters that no optimizer steps do not keep a step open for ever."""
    model = gpt2()
    watch = ex.watch(model, every=2)
    train(model, 3, torch.optim.SGD(model.h[0].parameters(), lr=0.1))
    assert len(watch.frame()["step"].unique()) == 2
    assert steps(watch) == [0, 2]
    frame = watch.frame().query("statistic == 'update_ratio'")
    assert set(frame["layer"]) == {1}


def test_an_optimizer_may_be_named() -> None:
    model = gpt2()
    counted = adam(model)
    watch = ex.watch(model, every=2, optimizer=counted)
    train(model, 3)
    assert steps(watch) == []
    train(model, 3, counted)
    assert steps(watch) == [0, 2]


@pytest.mark.parametrize(("backend", "inplace"), [("eager", False), ("aot_eager", True)])
def test_a_model_may_be_compiled_after(backend: str, inplace: bool) -> None:
    frames = []
    for compiled in (False, True):
        torch._dynamo.reset()
        model = Encoder()
        watch = ex.watch(model, every=2)
        run: Any = model
        if compiled and inplace:
            model.compile(backend=backend, fullgraph=True)
        elif compiled:
            run = torch.compile(model, backend=backend, fullgraph=True)
        optimizer = adam(model)
        for step in range(3):
            optimizer.zero_grad()
            run(batch(step)).square().mean().backward()
            optimizer.step()
        frame = watch.frame()
        kept = ["mean", "second_moment", "max_abs", "parameter_gradient", "update_ratio"]
        frames.append(frame[frame["statistic"].isin(kept)].reset_index(drop=True))
    plain, seen = frames
    columns = [name for name in plain.columns if name != "value"]
    assert plain[columns].equals(seen[columns])
    assert plain["value"].to_numpy() == pytest.approx(seen["value"].to_numpy(), rel=1e-4, abs=1e-6)


def test_a_compiled_model_is_refused() -> None:
    model = Encoder()
    refusal = "model must be watched before it is compiled: compiled code does not run hooks that come later"
    with pytest.raises(ValueError, match=refusal):
        ex.watch(torch.compile(model, backend="eager"))  # type: ignore[arg-type]
    model.encoder.layers[0].compile(backend="eager")
    with pytest.raises(ValueError, match=refusal):
        ex.watch(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "every must be a whole number from 1 on; got 0"),
        ({"every": 2.5}, "every must be a whole number from 1 on; got 2.5"),
        ({"every": True}, "every must be a whole number from 1 on; got True"),
        ({"start": -1}, "start must be a whole number from 0 on; got -1"),
        ({"model": nn.Linear(2, 2)}, "Linear has no repeated modules"),
        ({"blocks": "layers.*"}, "blocks must name modules of the model"),
        (
            {"sink": "somewhere"},
            "sink must be memory, tensorboard, wandb, a file that ends in .csv or .jsonl, a folder",
        ),
        (
            {"sink": 3},
            "sink must be memory, tensorboard, wandb, a file that ends in .csv or .jsonl, a folder.*; got 3",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments: dict[str, Any], message: str) -> None:
    model = gpt2()
    before = hooks(model)
    with pytest.raises(ValueError, match=message):
        ex.watch(**{"model": model, **arguments})
    assert hooks(model) == before


def test_what_is_no_model_or_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="model must be a Module; got 3 of type int"):
        ex.watch(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer must be an Optimizer; got 3 of type int"):
        ex.watch(gpt2(), optimizer=[3])  # type: ignore[list-item]
