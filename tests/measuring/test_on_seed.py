"""`measure(on_seed=…)`: what is handed over are rows of the whole, from the first seed on; no
thread is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from explorer import Config, Profile, Stopped, measure
from explorer.measuring.sharing import torch_threads

SMALL = Config(n_layers=3, d_model=192, n_heads=4, n_ctx=8, batch_size=2, n_seeds=4, seed=5)
"""Few layers, but too wide for seeds to share a pass."""
NARROW = SMALL.replace(n_layers=40, d_model=32)
EXPLODED = SMALL.replace(n_layers=60, norm_placement="none", init_variance=1000.0)
WAIT = 60.0


@pytest.fixture
def one_by_one() -> Iterator[None]:
    """A machine with one processor: a seed is begun when the last one is done."""
    with torch_threads(1):
        yield


class Awaited:
    """Keeps what was handed over; a seed waits in its first layer until the seed before it was."""

    def __init__(self, config: Config) -> None:
        self.profiles: list[Profile] = []
        self._config, self._fraction = config, 0.0
        self._changed = threading.Condition()

    def __call__(self, profile: Profile) -> None:
        with self._changed:
            self.profiles.append(profile)
            self._changed.notify_all()

    def progress(self, fraction: float) -> None:
        self._fraction = fraction

    def stop(self) -> bool:
        with self._changed:
            # while a seed's last layer says so
            done = int(self._fraction * self._config.n_seeds * (1 - 1e-9))
            assert self._changed.wait_for(lambda: len(self.profiles) >= done, WAIT)
        return False


def running() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("explorer-seed")
    ]


def same(some: Profile, whole: Profile) -> None:
    count = len(some.seeds)
    assert some.seeds == whole.seeds[:count]
    assert some.values.keys() == whole.values.keys()
    for key, values in some.values.items():
        np.testing.assert_array_equal(values, whole.values[key][:count], str(key))
    assert (some.config, some.pattern_of) == (whole.config, whole.pattern_of)
    assert (some.pattern is None) == (whole.pattern is None)
    if some.pattern is not None and whole.pattern is not None:
        np.testing.assert_array_equal(some.pattern, whole.pattern)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        SMALL.replace(norm_placement="post", loss="next_token", input="text", causal=True),
        EXPLODED,
        SMALL.replace(attention="none"),
        SMALL.replace(n_seeds=2),
    ],
    ids=["plain", "text", "exploded", "no attention", "two seeds"],
)
@pytest.mark.parametrize("backward", [True, False])
def test_each_seed_is_handed_over_as_it_comes_equal_to_the_whole(
    config: Config, backward: bool, one_by_one: None
) -> None:
    seen = Awaited(config)
    whole = measure(config, seen.stop, seen.progress, (2, 1), seen, backward)
    assert [len(some.seeds) for some in seen.profiles] == [*range(1, config.n_seeds)]
    for some in seen.profiles:
        same(some, whole)
        assert some.partial
        assert 0 < some.seconds <= whole.seconds
    assert not whole.partial


def test_side_by_side_no_seed_is_left_out_and_none_comes_before_the_first() -> None:
    seen: list[Profile] = []
    whole = measure(SMALL.replace(n_layers=40), on_seed=seen.append)
    counts = [len(some.seeds) for some in seen]
    assert counts == sorted(set(counts))
    assert set(counts) <= {1, 2, 3}
    for some in seen:
        same(some, whole)


def test_of_seeds_that_share_passes_the_first_comes_alone_and_the_others_together() -> None:
    seen: list[Profile] = []
    whole = measure(NARROW.replace(n_seeds=8), on_seed=seen.append)
    counts = [len(some.seeds) for some in seen]
    assert counts[0] == 1
    assert counts == sorted(set(counts))
    assert set(counts) <= {1, 4, 7}
    for some in seen:
        same(some, whole)


def test_who_waits_for_the_first_seed_gets_the_numbers_of_who_does_not() -> None:
    awaited, other = measure(NARROW, on_seed=lambda _: None), measure(NARROW)
    assert awaited.seeds == other.seeds
    assert awaited.values.keys() == other.values.keys()
    for key, values in awaited.values.items():
        np.testing.assert_allclose(values, other.values[key], rtol=1e-5, err_msg=str(key))


def test_one_seed_is_only_returned() -> None:
    seen: list[Profile] = []
    measure(SMALL.replace(n_seeds=1), on_seed=seen.append)
    assert seen == []


def test_a_measurement_stops_between_two_seeds(one_by_one: None) -> None:
    seen = Awaited(SMALL)
    with pytest.raises(Stopped):
        measure(SMALL, lambda: seen.stop() or bool(seen.profiles), seen.progress, on_seed=seen)
    assert len(seen.profiles) == 1
    assert running() == []


def test_what_it_raises_ends_the_measurement() -> None:
    def broken(_: Profile) -> None:
        raise ArithmeticError("no room on the page")

    with torch_threads(1), pytest.raises(ArithmeticError, match="no room on the page"):
        measure(SMALL.replace(n_layers=200), on_seed=broken)
    assert running() == []


def test_a_seed_that_fails_leaves_those_before_it(one_by_one: None) -> None:
    seen = Awaited(SMALL)

    def stop() -> bool:
        if seen.stop() or len(seen.profiles) > 1:
            raise MemoryError("no room for the third seed")
        return False

    with pytest.raises(MemoryError, match="third"):
        measure(SMALL, stop, seen.progress, on_seed=seen)
    assert [some.seeds for some in seen.profiles] == [(5,), (5, 6)]
    assert running() == []
