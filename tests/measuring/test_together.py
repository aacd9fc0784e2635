"""Seeds that share a pass: what each of them finds is what a pass of its own finds, to float32's
rounding."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.fuzz import designs
from explorer.config import Config
from explorer.limits import can_share, gains
from explorer.measuring import Stopped, measure
from explorer.measuring.observe import Pass
from explorer.measuring.sharing import runs_of
from explorer.model import Transformer
from explorer.model.batch import draw
from explorer.vocabulary import Array, Key

SMALL = Config(n_layers=3, d_model=32, n_heads=4, n_ctx=8, n_seeds=3)
CPU = torch.device("cpu")
ROUNDING = 1e-5
"""Sums of thousands of float32's in another order: its rounding, 6e-8, times the square root of
their number."""
CHOICES: list[dict[str, Any]] = [
    {},
    {"residual": "rezero"},
    {"residual": "skipinit"},
    {"residual": "layer_scale"},
    {"biases": "all", "bias_variance": 1.0, "qk_norm": True},
    {"layer_weights": "shared"},
    {"layer_weights": "copied"},
    {"input": "text", "loss": "next_token", "readout": "tied"},
    {"input": "text", "loss": "next_token"},
    {"position": "learned"},
    {"position": "rotary", "causal": True},
    {"sink": "learned"},
    {"attention": "none"},
    {"mlp": "gated", "attention_gate": "head", "n_kv_heads": 1},
    {"residual_attention": "qk", "stream": "parallel"},
    {"parametrization": "ntk", "value_residual": True},
    {"d_model": 160},
]


def found(
    config: Config, backward: bool = True
) -> tuple[list[dict[Key, Array]], list[dict[Key, Array]]]:
    """What a pass of each seed finds, and one of all."""
    seeds = range(config.seed, config.seed + config.n_seeds)
    apart = [Pass(config, seed, backward=backward).run(CPU)[0] for seed in seeds]
    return apart, Pass(config, config.seed, backward=backward, seeds=config.n_seeds).run(CPU)


def agree(config: Config, backward: bool = True) -> None:
    """Asserts that both are one."""
    apart, together = found(config, backward)
    assert len(apart) == len(together) == config.n_seeds
    for one, other in zip(apart, together, strict=True):
        assert list(one) == list(other)
        for key, values in one.items():
            size = np.max(np.abs(values), initial=0, where=np.isfinite(values))
            np.testing.assert_allclose(
                other[key], values, rtol=ROUNDING, atol=1e-6 * min(size, 1), err_msg=str(key)
            )


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_each_seed_finds_what_it_finds_alone(choices: dict[str, Any]) -> None:
    config = SMALL.replace(**choices)
    assert can_share(config.design)
    agree(config)


DRAWS = 4


def roundings(config: Config, seed: int) -> list[dict[Key, Array]]:
    """What passes find whose every weight is moved by roundings of float32, as many as a sum of
    `d_model` terms differs by in another order: about √d_model."""
    return [
        rounded(config, seed, torch.Generator().manual_seed(DRAWS * seed + number))
        for number in range(DRAWS)
    ]


def rounded(config: Config, seed: int, noise: torch.Generator) -> dict[Key, Array]:
    """One draw of them."""
    model, inputs = Transformer(config, seed), draw(config, seed)
    size = config.d_model**0.5 * torch.finfo(torch.float32).eps
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1 + size * (2 * torch.rand(parameter.shape, generator=noise) - 1)
    return Pass(config, seed).observe(model, inputs)[0]


def test_random_designs_differ_by_no_more_than_a_few_roundings_of_their_weights() -> None:
    """Where logits are in the thousands, or a gradient is what is left of two that cancel, rounding
    is seen.

    The largest of several draws says how much: by a single one, chance may hardly have moved a
    number. Another seed's numbers are refused all the same."""
    for design in islice(filter(lambda one: can_share(one.design), designs(3, 100)), 12):
        config = design.replace(
            n_seeds=2, seed=2, d_model=64, n_layers=min(design.n_layers, 4), head_size=0
        )
        apart, together = found(config)
        for seed, one, other, wrong in zip(
            range(2, 4), apart, together, together[::-1], strict=True
        ):
            moved, told = roundings(config, seed), []
            for key, values in one.items():
                with np.errstate(invalid="ignore"):  # infinite less infinite
                    margin = 4 * max(
                        np.nan_to_num(np.abs(draw[key] - values)).max() for draw in moved
                    )
                np.testing.assert_allclose(
                    other[key], values, rtol=ROUNDING, atol=margin, err_msg=f"{key} {config}"
                )
                told.append(
                    not np.allclose(wrong[key], values, rtol=ROUNDING, atol=margin, equal_nan=True)
                )
            assert np.mean(told) > 0.5, config


def test_seeds_of_one_pass_are_not_one_another() -> None:
    """Statistics of a wrong seed, or of all together, are further off than rounding."""
    _, together = found(SMALL)
    for key in together[0]:
        if key[0] != "activation_gradient" or key[1] == "embed":
            assert not np.allclose(
                together[0][key], together[1][key], rtol=100 * ROUNDING, atol=0
            ), key


def test_weights_and_batches_are_the_same_to_the_bit() -> None:
    config = SMALL.replace(
        input="text", loss="next_token", position="learned", biases="all", bias_variance=1.0
    )
    whole, inputs = Transformer(config, 4, seeds=3), draw(config, 4, 3)
    for index, part in enumerate(zip(*(each.chunk(3) for each in inputs), strict=True)):
        alone = dict(Transformer(config, 4 + index).named_parameters())
        for name, parameter in whole.named_parameters():
            assert torch.equal(parameter[index], alone[name]), name
        assert all(map(torch.equal, part, draw(config, 4 + index)))


def test_forward_alone_and_what_explodes() -> None:
    agree(SMALL, backward=False)
    exploding = SMALL.replace(norm_placement="none", init_variance=1e3, n_layers=40)
    agree(exploding)
    _, together = found(exploding)
    assert all(np.isnan(one["second_moment", "resid_post"][-1]) for one in together)


def test_a_seed_that_ends_does_not_end_the_others() -> None:
    """At this variance some of the draws leave float32's range in the last layers, and some do
    not."""
    config = SMALL.replace(
        norm_placement="none", init_variance=50.0, attention="none", n_layers=40, n_seeds=8
    )
    _, together = found(config)
    assert not all(np.isfinite(one["activation_gradient", "embed"]).all() for one in together)
    agree(config)


def test_only_narrow_designs_share_a_pass_and_no_seed_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = SMALL.replace(n_seeds=7, seed=5)
    assert [seed for run in runs_of(many) for seed in run] == list(range(5, 12))
    assert max(map(len, runs_of(many))) > 1
    assert gains(SMALL.design)
    for alone in (
        Config(),
        SMALL.replace(n_ctx=512),
        SMALL.replace(stream="hyper"),
        SMALL.replace(residual="admin_profiled", norm_placement="post"),
    ):
        assert all(len(run) == 1 for run in runs_of(alone))
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", "0")
    assert all(len(run) == 1 for run in runs_of(many))


def test_measure_keeps_the_pattern_of_the_first_seed_tells_how_far_it_is_and_stops() -> None:
    reached: list[float] = []
    profile = measure(SMALL, progress=reached.append, pattern_of=(2, 3))
    alone = measure(SMALL.replace(n_seeds=1), pattern_of=(2, 3))
    assert profile.pattern is not None
    assert alone.pattern is not None
    np.testing.assert_allclose(profile.pattern, alone.pattern, rtol=ROUNDING)
    assert reached == sorted(reached)
    assert reached[-1] == 1
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 12

    with pytest.raises(Stopped):
        measure(SMALL.replace(n_layers=40), stop=stop)
    assert len(asked) < 12 + 1 + SMALL.n_seeds
