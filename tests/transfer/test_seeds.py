"""Noise under a shared seed: independent from run to run, and the same in the next process."""

import math

import keras
import numpy as np
import pytest

from tests.transfer.tables import clusters
from tfdp.transfer import FullBatch, LastLayer, Preparation, Steps, as_table
from tfdp.transfer.fine_tuning import SampledHead, fit_sampled
from tfdp.transfer.release_budget import Spending, seed_for
from tfdp.transfer.studies import Budget, Candidate, fit, tune
from tfdp.transfer.studies.tuning import _judging_noise

CLASSES, DIM, ROWS = 3, 6, 600
X, Y = clusters(ROWS, DIM, CLASSES, seed=1)


@pytest.fixture
def drawn(monkeypatch):
    """The standard normal noise of every release that is made, flat."""
    found = []
    release_mean = Spending.release_mean

    def spy(self, name, sums, *, sensitivity, divisor):
        made = release_mean(self, name, sums, sensitivity=sensitivity, divisor=divisor)
        scale = sensitivity * self.noise_multiplier(name)
        found.append(
            np.concatenate(
                [
                    (np.asarray(noisy, float) * divisor - np.asarray(exact, float)).ravel() / scale
                    for noisy, exact in zip(made.gradients, sums, strict=True)
                ]
            )
        )
        return made

    monkeypatch.setattr(Spending, "release_mean", spy)
    return found


def _apart(draws):
    """No two of the draws have noise in common; by chance once in 1e8 (|r| of 18 numbers)."""
    for i, one in enumerate(draws):
        for other in draws[:i]:
            width = min(len(one), len(other))
            assert abs(np.corrcoef(one[:width], other[:width])[0, 1]) < 0.93


def test_trial_runs_under_one_seed_have_noise_of_their_own(drawn):
    candidate = Candidate(
        "full_batch",
        settings={"loop.steps": 1, "loop.optimizer": "sgd"},
        preparation={"center": "none"},
        grid={"loop.learning_rate": [1.0, 1.0, 100.0]},
    )
    rows, budget = as_table(X, Y, CLASSES), Budget(ROWS, CLASSES, 1.0, 1e-5)
    for epsilon in (1.0, 8.0):
        own = Budget(ROWS, CLASSES, epsilon, 1e-5)
        tune(candidate, rows, own, charge=True, seed=1000)
    fit(candidate, candidate.choices()[0], rows, budget, runs=4, seed=1000)
    assert len(drawn) == 7
    _apart(drawn)
    tune(candidate, rows, budget, charge=True, seed=1000)
    np.testing.assert_allclose(drawn[7:], drawn[:3], atol=1e-6)  # a study can be made again


def test_judging_has_noise_of_its_own_for_every_method_and_budget():
    one, other = Budget(ROWS, CLASSES, 1.0, 1e-5), Budget(ROWS, CLASSES, 8.0, 1e-5)
    newton, auto = Candidate("newton"), Candidate("auto")
    found = [_judging_noise(c, b, 50, 3) / b.noise_multiplier(50) for c, b in (
        (newton, one), (newton, other), (auto, one),
    )]  # fmt: skip
    assert np.abs(np.corrcoef(found) - np.eye(3)).max() < 0.8
    assert not np.allclose(_judging_noise(newton, one, 5, None), _judging_noise(newton, one, 5, 3))


def test_what_two_budgets_of_one_seed_release_does_not_give_the_gradient_away():
    low, high, exact = (
        LastLayer(CLASSES, num_examples=ROWS, epsilon=e, method="one_step", seed=0).fit(X, Y)
        for e in (1.0, 8.0, math.inf)
    )
    one, other = low.plan.noise_multiplier, high.plan.noise_multiplier
    guess = (high.head.kernel * one - low.head.kernel * other) / (one - other)
    error = np.abs(guess - exact.head.kernel).max() / np.abs(exact.head.kernel).max()
    assert error > 0.01  # with shared noise it is 1e-6


@pytest.mark.parametrize(
    "change",
    [
        {"method": FullBatch(Steps(steps=1, learning_rate=2.0))},
        {"preparation": Preparation(bias=1.0)},
        {"num_examples": ROWS + 1},
        {"delta": 1e-6},
        {"adjacency": "replace_one"},
        {"seed": 1},
    ],
)
def test_heads_that_differ_in_anything_share_no_noise(drawn, change):
    usual = {
        "num_examples": ROWS,
        "epsilon": 1.0,
        "method": FullBatch(Steps(steps=1)),
        "preparation": Preparation(),
        "seed": 0,
    }
    for settings in (usual, {**usual, **change}):
        LastLayer(CLASSES, **settings).fit(X, Y)
    _apart(drawn)


def test_sampled_heads_of_other_budgets_draw_other_noise_and_batches():
    rows = as_table(X, Y, CLASSES)
    settings = SampledHead(batch_size=60, epochs=1, init=0.03)
    budget = {"num_examples": ROWS, "num_classes": CLASSES, "delta": 1e-5}
    heads = [
        fit_sampled(settings, rows, **budget, epsilon=epsilon, seed=4)[0].model.get_weights()
        for epsilon in (1.0, 1.0, 2.0)
    ]
    np.testing.assert_array_equal(heads[0][0], heads[1][0])
    assert abs(np.corrcoef(heads[0][0].ravel(), heads[2][0].ravel())[0, 1]) < 0.93


def test_child_seeds_tell_purposes_apart_and_repeat_in_any_process():
    def rate(first):
        return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(first, 10))

    purposes = [
        ("a", "b"), ("ab",), ("a", None), ("a", 1), ("a", 1.0), ("a", True), (["a"], "b"),
        (Steps(),), (Steps(steps=3),), (FullBatch(Steps()),), ({"a": 1},), ({"a": 2},),
        (np.zeros(3),), (np.zeros(3, np.float32),), (rate(0.1),), (rate(0.2),),
    ]  # fmt: skip
    seeds = [seed_for(7, *purpose) for purpose in purposes]
    assert len(set(seeds)) == len(purposes)
    assert seed_for(7, rate(0.1)) == seed_for(7, rate(0.1))
    assert seed_for(7, "a", np.float64(1.0)) == seed_for(7, "a", 1.0)
    assert seed_for(8, "a", "b") != seeds[0] and seed_for(None, "a") is None
    assert seed_for(7, "a", "b") == 148972202971752598536349152800236541388
