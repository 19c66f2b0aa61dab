"""Budgets of unequal releases: noise, composition and the book that is kept."""

import math

import numpy as np
import pytest

from tfdp.privacy import Ledger, PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.transfer.release_budget import OverspentError, Release, Spending, whole_budget

#: One release at q = 1, exact Gaussian mechanism.
SIGMAS = {
    1e-5: {0.1: 30.75, 0.5: 7.032, 1: 3.731, 2: 1.994, 4: 1.081, 8: 0.600, 10: 0.500},
    8e-7: {0.1: 36.81, 0.5: 8.152, 1: 4.270, 2: 2.252, 4: 1.204, 8: 0.658, 10: 0.545},
    1e-6: {0.1: 36.30, 0.5: 8.058, 1: 4.225, 2: 2.231, 4: 1.194, 8: 0.653, 10: 0.541},
}


def _spending(releases, sigma=2.0, seed=0, ledger=None):
    plan = whole_budget(1000, None, 1e-5, sigma, "add_or_remove_one")
    return Spending(plan, releases, NoiseKey.from_seed(seed), ledger)


@pytest.mark.parametrize("delta", SIGMAS)
def test_noise_of_one_release_is_that_of_the_exact_mechanism(delta):
    for epsilon, sigma in SIGMAS[delta].items():
        found = whole_budget(50_000, epsilon, delta).noise_multiplier
        assert found == pytest.approx(sigma, abs=6e-4 if sigma < 10 else 6e-3)


@pytest.mark.parametrize(
    ("epsilon", "steps", "sigma"),
    [(0.01, 1, 243.785), (0.1, 60, 238.185), (1.0, 1, 3.7306), (50.0, 1, 0.14976)],
)
def test_calibration_over_equal_steps(epsilon, steps, sigma):
    """N19."""
    plan = whole_budget(50_000, epsilon, 1e-5)
    spending = Spending(plan, [Release("gradient", count=steps)], NoiseKey.from_seed(0))
    assert spending.noise_multiplier("gradient") == pytest.approx(sigma, rel=2e-4)


def test_a_hundred_steps_cost_what_one_release_costs():
    """N17: s = 10, T = 100 is s = 1 once: 4.3772."""
    spending = _spending([Release("gradient", count=100)], sigma=1.0)
    assert spending.noise_multiplier("gradient") == pytest.approx(10.0)
    for _ in range(100):
        spending.release("gradient", np.zeros(1), sensitivity=1.0)
    assert spending.ledger.epsilon(1e-5).epsilon == pytest.approx(4.377178, abs=1e-5)


def test_unequal_releases_compose_to_exactly_the_budget():
    releases = [Release("a", 0.03), Release("b", 0.17), Release("c", 0.8, count=7)]
    spending = _spending(releases, sigma=1.7)
    for release in releases:
        for number in range(release.count):
            spending.release(release.name, np.zeros(2), sensitivity=0.1 + number)
    whole = PrivacyPlan(1000, 1000, 1, 1.0, delta=1e-5, noise_multiplier=1.7)
    assert spending.ledger.epsilon(1e-5).epsilon == pytest.approx(whole.epsilon, rel=1e-9)


def test_nothing_is_released_twice_or_unrecorded():
    """An uncharged extra step is a fault of the published code."""
    ledger = Ledger()
    spending = _spending([Release("a", 0.5), Release("b", 0.5, count=2)], ledger=ledger)
    spending.release("a", np.zeros(1), sensitivity=1.0)
    assert ledger.steps == 1
    with pytest.raises(OverspentError, match="released 1 times"):
        spending.release("a", np.zeros(1), sensitivity=1.0)
    with pytest.raises(OverspentError, match="not in the budget"):
        spending.release("c", np.zeros(1), sensitivity=1.0)
    assert ledger.steps == 1


def test_a_release_is_recorded_before_its_result_exists(monkeypatch):
    spending = _spending([Release("a")])
    monkeypatch.setattr(
        "tfdp.transfer.release_budget.privatize", lambda *_: 1 / 0
    )  # the process dies while noise is drawn
    with pytest.raises(ZeroDivisionError):
        spending.release("a", np.zeros(1), sensitivity=1.0)
    assert spending.ledger.steps == 1


def test_noise_has_the_stated_deviation_and_scales_with_sensitivity():
    """200,000 draws: the deviation is within 1 % but for a chance below 1e-9."""
    for sensitivity in (0.5, 2.0):
        spending = _spending([Release("a", 0.25, count=4), Release("b", 0.75)], sigma=2.0)
        (noise,) = spending.release("a", np.zeros(200_000), sensitivity=sensitivity)
        expected = 2.0 * math.sqrt(4 / 0.25) * sensitivity
        assert spending.noise_multiplier("a") == pytest.approx(8.0)
        assert noise.std() == pytest.approx(expected, rel=0.01)


def test_noise_is_independent_between_classes_steps_and_releases():
    """One draw for all classes, or replayed at each step, are faults of the published code.

    Correlations of 100,000 independent pairs stay below 0.02 but for a chance of 1e-9 each.
    """
    spending = _spending([Release("a", 0.5, count=2), Release("b", 0.5, count=2)])
    draws = []
    for name in ("a", "a", "b", "b"):
        kernel, moment = spending.release(
            name, np.zeros((100_000, 3)), np.zeros((100_000, 1)), sensitivity=1.0
        )
        draws += [*kernel.T, *moment.T]
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 0.02


def test_two_runs_without_a_seed_draw_different_noise():
    keys = [NoiseKey.from_entropy(), NoiseKey.from_entropy()]
    plan = whole_budget(10, None, 1e-5, 1.0, "add_or_remove_one")
    noise = [
        Spending(plan, [Release("a")], key).release("a", np.zeros(8), sensitivity=1.0)[0]
        for key in keys
    ]
    assert not np.any(noise[0] == noise[1])


def test_shares_that_do_not_add_up_and_twin_names_are_rejected():
    with pytest.raises(ValueError, match="shares of sum 1"):
        _spending([Release("a", 0.5), Release("b", 0.4)])
    with pytest.raises(ValueError, match="distinct names"):
        _spending([Release("a", 0.5), Release("a", 0.5)])


def test_replace_one_needs_twice_the_noise():
    one, two = (
        whole_budget(1000, 1.0, 1e-5, None, adjacency).noise_multiplier
        for adjacency in ("add_or_remove_one", "replace_one")
    )
    assert two == pytest.approx(2 * one, rel=2e-4)


def test_noise_on_a_grid_is_rejected_before_anything_is_released():
    plan = PrivacyPlan(1000, 1000, 1, 1.0, delta=1e-5, noise_multiplier=1.7, secure=True)
    with pytest.raises(ValueError, match="secure=True: a last layer"):
        Spending(plan, [Release("all")], NoiseKey.from_entropy())
