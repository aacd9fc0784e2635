"""Layers that are copies of one: the recursion along the stream is the sum over all its
branches."""

import numpy as np

from explorer.theory.forward import recurrence


def test_overlaps_along_the_stream_are_sums_over_its_branches():
    rng = np.random.default_rng(0)
    kept, joined, terms = rng.uniform(0.5, 1.5, (3, 40))
    weight = np.zeros((41, 40))  # [site, branch]: of each branch in the stream
    for k in range(40):
        weight[k + 1] = kept[k] * weight[k]
        weight[k + 1, k] = joined[k]
    np.testing.assert_allclose(recurrence(kept, joined, terms), weight @ terms, rtol=1e-13)


def test_a_first_branch_meets_nothing_below():
    none = np.empty(0)
    np.testing.assert_array_equal(recurrence(none, none, none), [0.0])
