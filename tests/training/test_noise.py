"""The noise that fit really adds: its scale, its independence, and how often it is drawn.

A million coordinates put the standard error of a measured deviation at 0.07 %, so a deviation
of 1 % is a false alarm with probability below 1e-40.
"""

import numpy as np
import pytest

import tfdp
from tests.training.models import compiled, flat_model, linear_sum

SIZE = 1000  # a kernel of SIZE x SIZE is a million coordinates
ZEROS = np.zeros((256, SIZE), "float32")  # zero inputs: every gradient is zero
TARGETS = np.zeros(256, "float32")


def noise_of_fit(clip=2.0, noise=1.5, steps=1, rate=1.0, layers=1, batch=64, **kwargs):
    """Weights after fit on zero gradients from zero weights: pure noise."""
    plan = tfdp.PrivacyPlan(256, batch, steps, clip, noise_multiplier=noise, delta=1e-5)
    model = compiled(
        flat_model(SIZE, SIZE, layers),
        plan,
        tfdp.optimizers.DPSGD(rate, privacy=plan),
        linear_sum,
        **kwargs,
    )
    model.fit(ZEROS, TARGETS, verbose=0)
    return model.get_weights()


@pytest.fixture(scope="module")
def weights():
    """One run as above, which many tests look at."""
    (weights,) = noise_of_fit()
    return weights


@pytest.fixture(scope="module")
def whole():
    """The same run, every batch in one microbatch."""
    (weights,) = noise_of_fit(microbatch_size=256)
    return weights


def test_deviation_is_noise_multiplier_times_clip_over_expected_batch(weights):
    """A13."""
    assert weights.std() == pytest.approx(1.5 * 2 / 64, rel=0.01)  # 0.046875
    assert abs(weights.mean()) < 5 * 0.046875 / SIZE


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0])
def test_deviation_is_linear_in_the_clip_norm(clip):
    """A14."""
    (weights,) = noise_of_fit(clip=clip)
    assert weights.std() == pytest.approx(1.5 * clip / 64, rel=0.01)


def test_learning_rate_scales_the_noise_exactly(weights):
    """A15."""
    (eighth,) = noise_of_fit(rate=0.125)
    np.testing.assert_array_equal(weights * np.float32(0.125), eighth)


@pytest.mark.parametrize("microbatch_size", [64, 16, 7])
def test_noise_is_drawn_once_per_step_whatever_the_number_of_microbatches(microbatch_size, whole):
    """A16."""
    (parts,) = noise_of_fit(microbatch_size=microbatch_size)
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


def test_noise_is_independent_across_weights_and_steps(weights):
    """A17."""
    first, second = noise_of_fit(layers=2)
    (two,) = noise_of_fit(steps=2)
    for a, b in ((first, second), (weights, two - weights)):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5e-3  # five standard errors


def test_runs_without_a_seed_never_repeat_noise():
    (one,), (two,) = noise_of_fit(seed=None), noise_of_fit(seed=None)
    assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 5e-3


def test_a_seed_makes_noise_repeatable():
    np.testing.assert_array_equal(noise_of_fit(seed=3), noise_of_fit(seed=3))


def test_noise_is_gaussian(weights):
    scaled = np.sort(weights.ravel() / weights.std())
    # Shares of a million draws beyond 1, 2 and 3 deviations; five standard errors each.
    for bound, share in ((1, 0.317311), (2, 0.045500), (3, 0.0026998)):
        seen = np.mean(np.abs(scaled) > bound)
        assert abs(seen - share) < 5 * np.sqrt(share * (1 - share) / 1e6)
