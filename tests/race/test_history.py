"""What is kept of a race when a reading lacks something, and what may not be imported to show
it."""

import subprocess
import sys

import numpy as np
import pytest

from explorer.vocabulary import STATISTICS
from explorer_race.history import TRAINING, History


def test_what_a_reading_lacks_is_missing() -> None:
    history = History()
    history.record(0, {("second_moment", "embed"): np.array([1.0])})
    history.record(
        5, {("second_moment", "embed"): np.array([2.0]), ("alpha", "mlp_out"): np.array([0.1, 0.2])}
    )
    history.record(10, {("alpha", "mlp_out"): np.array([0.3, 0.4])})
    steps, moments = history.series("second_moment", "embed")
    assert steps.tolist() == [0, 5, 10]
    assert moments.tolist()[:2] == [[1], [2]]
    assert np.isnan(moments[2]).all()
    alphas = history.series("alpha", "mlp_out")[1]
    assert np.isnan(alphas[0]).all()
    assert alphas[1:].tolist() == [[0.1, 0.2], [0.3, 0.4]]


def test_news_that_are_told_again_take_the_place_of_what_was_there() -> None:
    """A worker died after its news were taken; the next one tells them again, and goes on."""
    first, second = History(), History()
    key = ("second_moment", "embed")
    for step in range(3):
        first.losses.append(3.0 - step)
        first.record(step, {key: np.array([float(step)])})
    for step in range(4):
        second.losses.append(3.5 - step)
        second.record(step, {key: np.array([10.0 + step])})
    first.add(second.since(1, 1))
    assert first.losses == [3.0, 2.5, 1.5, 0.5]
    steps, moments = first.series(*key)
    assert steps.tolist() == [0, 1, 2, 3]
    assert moments[:, 0].tolist() == [0.0, 11.0, 12.0, 13.0]
    with pytest.raises(ValueError, match="at loss 4; got some from 5"):
        first.add(second.since(5, 4))


def test_the_matrices_of_a_statistic_are_those_that_were_read() -> None:
    history = History()
    steps, none = history.matrices("update_ratio")
    assert (steps.shape, none.shape) == ((0,), (0, 0, 0))
    for step in (0, 5):
        history.record(step, {("update_ratio", "W_V"): np.array([1.0 + step, 2.0])})
    steps, found = history.matrices("update_ratio")
    assert steps.tolist() == [0, 5]
    assert found.tolist() == [[[1, 2], [6, 2]]]


def test_what_was_never_told() -> None:
    with pytest.raises(KeyError, match="no update_ratio at 'W_Q'"):
        History().series("update_ratio", "W_Q")


def test_the_vocabulary_is_the_profiles_and_more() -> None:
    shared = set(TRAINING) & set(STATISTICS)
    assert shared == set(STATISTICS) - {"activation_gradient"}
    assert all(TRAINING[name] is STATISTICS[name] for name in shared)


@pytest.mark.parametrize("module", ["recipe", "tasks", "history"])
def test_settings_and_numbers_do_not_wait_for_torch(module: str) -> None:
    code = f"import sys, explorer_race.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
