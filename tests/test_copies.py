"""Every public record goes through pickle, torch's files and other processes, and comes back equal
and read-only."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import FrozenInstanceError, fields
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

import explorer as ex

SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2, "n_ctx": 8, "n_seeds": 2}


def through_torch(record: object) -> Any:
    torch.save(record, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda record: pickle.loads(pickle.dumps(record)),  # noqa: S301
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "torch": through_torch,
}
way = pytest.mark.parametrize("through", WAYS.values(), ids=WAYS)


def encoder() -> tuple[torch.nn.Module, torch.Tensor]:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 8, 16)


def same(one: ex.Profile, other: ex.Profile) -> bool:
    for field in fields(one):
        mine, yours = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("values", "scatter"):
            assert list(mine) == list(yours)
            for key in mine:
                assert_array_equal(mine[key], yours[key], strict=True)
                assert not yours[key].flags.writeable
        elif field.name == "others":
            assert all(map(same, mine, yours))
        else:
            assert_equal(mine, yours)
            assert type(mine) is type(yours)
    return True


@way
@pytest.mark.parametrize(
    "profile",
    [
        lambda: ex.measure(ex.Config(**SMALL)),
        lambda: ex.predict(ex.Config(**SMALL)),
        lambda: ex.probe(*encoder()),
    ],
    ids=["measured", "predicted", "probed"],
)
def test_a_profile_comes_back(
    profile: Callable[[], ex.Profile], through: Callable[[Any], Any]
) -> None:
    held = profile()
    got = through(held)
    assert same(held, got)
    with pytest.raises(TypeError):
        got.notes["second_moment"] = "written"
    assert list(map(str, ex.diagnose(got))) == list(map(str, ex.diagnose(held)))


@way
def test_findings_come_back(through: Callable[[Any], Any]) -> None:
    found = ex.diagnose(
        ex.measure(ex.Config(**{**SMALL, "attention_scale": "none", "init_variance": 9.0}))
    )
    assert any(one.config_change for one in found)
    assert through(found) == found
    assert type(through(found)) is type(found)
    for one in found:
        got = through(one)
        assert got == one
        with pytest.raises(TypeError):
            got.config_change["alpha"] = 2
        with pytest.raises(FrozenInstanceError):
            got.meaning = ""


def test_a_finding_keeps_its_change_from_whoever_gave_it() -> None:
    change = {"alpha": 1.0}
    finding = ex.Finding("bad", "", "", config_change=change)
    change["alpha"] = 2.0
    assert finding.config_change == {"alpha": 1.0}


@way
def test_other_records_come_back(through: Callable[[Any], Any]) -> None:
    config = ex.Config(**{**SMALL, "norm_placement": "none"})
    contender = ex.Contender("one", ex.Task().fit(config), ex.Recipe(warmup=3))
    twin = ex.twin(*encoder())
    for record in (
        config,
        contender,
        contender.recipe,
        ex.Task(),
        twin,
        ex.PRESETS,
        ex.PRESETS["llama3"],
        ex.solve(config, vary="alpha", target="flat_signal"),
    ):
        assert through(record) == record
        assert type(through(record)) is type(record)
    assert hash(through(config)) == hash(config)
    with pytest.raises(ex.ConfigError) as refused:
        config.replace(n_heads=3)
    assert str(through(refused.value)) == str(refused.value)
    run = ex.race([contender], steps=2)
    (history,) = run.histories.values()
    assert through(history).frame().equals(history.frame())
    assert through(run.verdict()) == run.verdict()
    sweep = ex.Sweep(ex.Config(**SMALL), {"alpha": [0.5, 1.0]}, origins=["predicted"])
    assert (
        through(sweep).run().dataset().second_moment.identical(sweep.run().dataset().second_moment)
    )


def test_other_processes_measure() -> None:
    configs = [ex.Config(**{**SMALL, "alpha": alpha}) for alpha in (0.5, 1.0)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for got, config in zip(pool.map(ex.measure, configs), configs, strict=True):
            assert {**got.values}.keys() == {**ex.measure(config).values}.keys()
            assert_allclose(
                got["second_moment", "resid_post"],
                ex.measure(config)["second_moment", "resid_post"],
                rtol=1e-5,
            )
