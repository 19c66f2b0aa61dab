"""The auditor claims no leak where there is none, finds the ones there are, and stays below."""

import numpy as np
import pytest

from tfdp.audit import epsilon_lower_bound
from tfdp.privacy import Segment, StepSettings, epsilon
from tfdp.privacy.noise import NoiseKey, privatize


def normals(seed, mean, count=400):
    return np.random.default_rng(seed).normal(mean, size=count)


def test_equal_distributions_prove_nothing_in_95_of_100_runs():
    bounds = [
        epsilon_lower_bound(normals([1, n], 0), normals([2, n], 0), 1e-5).epsilon
        for n in range(200)
    ]
    assert np.mean(np.equal(bounds, 0)) >= 0.95
    assert max(bounds) < 0.5


def test_constant_scores_prove_nothing():
    assert epsilon_lower_bound(np.zeros(100), np.zeros(100), 1e-5).epsilon == 0


@pytest.mark.parametrize("shift", [3.0, -3.0])
def test_separated_distributions_prove_a_leak_whichever_way_they_lie(shift):
    """A33."""
    found = epsilon_lower_bound(normals(1, shift), normals(2, 0), 1e-5)
    assert found.epsilon > 2
    assert found.true_positive_rate > found.false_positive_rate
    assert found.trials == (200, 200)


def test_an_example_missed_by_few_is_found_by_the_runs_without_it():
    """A33: runs with the example never score high; its absence is what shows."""
    without = np.arange(400) % 2
    assert epsilon_lower_bound(np.zeros(400), without, 1e-5).epsilon > 2


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_the_noise_of_this_library_is_never_shown_to_leak_more_than_is_accounted(noise):
    runs, clip = 20_000, 0.7
    released = []
    for seed, example in ((1, clip), (2, 0.0)):  # the worst example: all of the clip norm
        seeds = NoiseKey.from_seed(seed).seeds(0, 1)
        sums = [np.full(runs, example, "float32")]
        released.append(privatize(sums, clip, noise, 1.0, seeds).gradients[0].numpy())
    proved = epsilon_lower_bound(*released, 1e-5).epsilon
    settings = StepSettings(100, 100, noise, clip, sampling="full_batch")
    accounted = epsilon([Segment(settings, 1)], 1e-5).epsilon
    assert 0.25 * accounted < proved <= accounted


def test_what_cannot_be_audited_is_rejected():
    for kwargs, message in (
        ({"scores_with": [1, 2]}, "2 scores"),
        ({"scores_with": [1, 2, 3, np.nan]}, "not numbers"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"confidence": 0.0}, "confidence=0.0"),
    ):
        good = {"scores_with": range(8), "scores_without": range(8), "delta": 0.0}
        with pytest.raises(ValueError, match=message):
            epsilon_lower_bound(**{**good, **kwargs})
