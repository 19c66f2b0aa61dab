"""Noise, steps and batches from a budget: never above it, and close below."""

import math
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

from tfdp.privacy import (
    PrivacyPlan,
    Segment,
    StepSettings,
    batch_size_for_epsilon,
    epsilon,
    noise_for_epsilon,
    steps_for_epsilon,
)
from tfdp.privacy.accounting import pld, releases
from tfdp.privacy.calibration import UnreachableError, largest_integer, meet_target
from tfdp.privacy.solve import solve_plan


def settings(batch, examples, noise=0.0, **more):
    return StepSettings(examples, batch, noise, 1.0, **more)


def check(target, delta, template, steps, noise, accountant="auto"):
    """The noise found keeps to the target, and comes within 1 % of it."""
    run = Segment(
        settings(template.batch_size, template.num_examples, noise, sampling=template.sampling),
        steps,
    )
    reached = epsilon([run], delta, accountant).epsilon
    assert 0.99 * target <= reached <= target
    return reached


@pytest.mark.parametrize(
    ("target", "steps", "noise"),
    [(0.01, 1, 243.785), (0.1, 60, 238.185), (1, 1, 3.7306), (50, 1, 0.14976)],
)
def test_noise_for_the_full_batch(target, steps, noise):
    found = noise_for_epsilon(target, 1e-5, settings(100, 100), steps)
    assert found == pytest.approx(noise, rel=1.5e-5)


def test_noise_by_both_accountants():
    template = settings(1024, 14_732)
    assert noise_for_epsilon(4, 2e-5, template, 42) == pytest.approx(0.9010, abs=1e-4)
    by_rdp = noise_for_epsilon(4, 2e-5, template, 42, accountant="rdp")
    assert by_rdp == pytest.approx(0.9737, abs=2e-4)


@pytest.mark.parametrize(("steps", "noise"), [(11_049, 7.683), (2762, 3.907)])
def test_long_runs(steps, noise):
    found = noise_for_epsilon(4, 2e-5, settings(1024, 14_732), steps)
    assert found == pytest.approx(noise, rel=2e-3)


def test_the_expected_batch_is_what_counts():
    """4 x 256 and 16 x 64 are the same update; the rate of a microbatch is not the rate."""
    noise = noise_for_epsilon(4, 2e-5, settings(1024, 14_732), 42)
    assert steps_for_epsilon(4, 2e-5, settings(1024, 14_732, noise)) == 42
    with pytest.raises(ValueError, match="not even one step"):
        solve_plan(num_examples=100, batch_size=8, noise_multiplier=0.4, epsilon=1.1, delta=1e-5)
    n9 = epsilon([Segment(settings(8, 100, 1.0), 100)], 1e-5).epsilon
    assert n9 > 1.1, "with the physical rate 0.01 it would seem to be 0.72"


def test_200_targets_at_full_batch():
    rng = np.random.default_rng(3)
    template = settings(1, 1)
    for target in np.exp(rng.uniform(np.log(0.005), np.log(200), 200)):
        check(float(target), 1e-6, template, 7, noise_for_epsilon(float(target), 1e-6, template, 7))


@pytest.mark.parametrize("target", [0.01, 0.1, 1, 10, 50, 100])
def test_poisson_targets_from_small_to_large(target):
    template = settings(256, 60_000)
    check(target, 1e-5, template, 1000, noise_for_epsilon(target, 1e-5, template, 1000))


@pytest.mark.parametrize("sampling", ["fixed_size", "none", "arbitrary"])
def test_other_samplings(sampling):
    template = settings(600, 60_000, sampling=sampling)
    check(2, 1e-5, template, 100, noise_for_epsilon(2, 1e-5, template, 100))


ALONE = """
from pathlib import Path
from tfdp.privacy import StepSettings, noise_for_epsilon
noise_for_epsilon(100, 1e-5, StepSettings(1000, 300, 0.0, 1.0), 20_000)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def test_calibration_stays_below_one_gigabyte():
    """A whole process, libraries included, after a large target with many steps."""
    output = subprocess.run(
        [sys.executable, "-c", ALONE], stdout=subprocess.PIPE, check=True
    ).stdout
    assert int(output) * 1024 < 2**30


def test_what_has_been_spent_counts():
    template = settings(256, 60_000, 1.0)
    spent = [Segment(template, 1000)]
    fresh = steps_for_epsilon(1.0, 1e-5, template)
    assert steps_for_epsilon(1.0, 1e-5, template, spent=spent) == fresh - 1000
    assert steps_for_epsilon(1.0, 1e-5, template, at_most=300) == 300
    assert steps_for_epsilon(0.5, 1e-5, template, spent=spent) == 0
    noise = noise_for_epsilon(2, 1e-5, template, 500, spent=spent)
    both = [*spent, Segment(settings(256, 60_000, noise), 500)]
    assert 1.98 <= epsilon(both, 1e-5).epsilon <= 2


def test_steps_are_exact():
    template = settings(100, 100, 20.0)
    found = steps_for_epsilon(3.0, 1e-5, template)
    assert epsilon([Segment(template, found)], 1e-5).epsilon <= 3.0
    assert epsilon([Segment(template, found + 1)], 1e-5).epsilon > 3.0
    assert steps_for_epsilon(1.0, 1e-5, settings(100, 100, 0.0)) == 0


def test_any_one_follows_from_the_other_three():
    common = {"num_examples": 14_732, "delta": 2e-5}
    noise = solve_plan(**common, batch_size=1024, steps=42, epsilon=4).noise_multiplier
    known = {"noise_multiplier": noise, "epsilon": 4}
    steps = solve_plan(**common, **known, batch_size=1024)
    assert (steps.steps, steps.target_epsilon) == (42, 4)
    assert steps.epsilon <= 4
    batch = solve_plan(**common, **known, steps=42)
    assert batch.batch_size in (1023, 1024)
    assert batch.epsilon <= 4
    plan = solve_plan(**common, noise_multiplier=noise, batch_size=1024, steps=42)
    assert plan.epsilon == pytest.approx(4, rel=1e-3)
    assert plan.target_epsilon is None


def test_the_batch_may_be_everything():
    plan = solve_plan(num_examples=500, delta=1e-5, steps=3, noise_multiplier=100, epsilon=8)
    assert (plan.batch_size, plan.sampling) == (500, "full_batch")


def test_what_is_impossible_is_rejected_in_one_line():
    with pytest.raises(ValueError, match="leave out exactly one of .*left out: steps, epsilon"):
        solve_plan(num_examples=10, delta=1e-5, batch_size=1, noise_multiplier=1)
    with pytest.raises(ValueError, match="cannot be reached"):
        solve_plan(num_examples=1000, delta=1e-6, steps=100, noise_multiplier=0.1, epsilon=0.1)
    with pytest.raises(ValueError, match="use a smaller delta"):
        noise_for_epsilon(1, 1e-2, settings(1, 10_000), 3)
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        noise_for_epsilon(0, 1e-5, settings(1, 100), 3)
    with pytest.raises(ValueError, match="at_most must be a whole number of at least 1, got 0"):
        steps_for_epsilon(1, 1e-5, settings(1, 100, 1.0), at_most=0)
    with pytest.raises(ValueError, match="a full batch has one size, .* below 100 "):
        batch_size_for_epsilon(1, 1e-5, settings(100, 100, 1.0), 3)


def test_more_epsilon_means_less_noise_and_the_report_meets_the_target():
    tight = PrivacyPlan(1000, 100, 50, 1.0, epsilon=4, delta=1e-5)
    loose = PrivacyPlan(1000, 100, 50, 1.0, epsilon=100, delta=1e-5)
    assert tight.noise_multiplier > loose.noise_multiplier
    assert 3.9 <= tight.epsilon <= 4.0
    assert 99 <= loose.epsilon <= 100


@pytest.mark.parametrize("slope", [2.0, -2.0])
def test_search_meets_a_power_law_from_below(slope):
    found = meet_target(lambda x: 3 * x**slope, 12.0, 0.7, (1e-6, 1e6), 1e-6, rises=slope > 0)
    assert 12 * (1 - 1e-6) <= 3 * found**slope <= 12


def test_search_survives_jumps_zeros_and_infinities():
    def step(x):
        return 0.0 if x < 2 else float("inf")

    def meet(cost):
        return meet_target(cost, 1.0, 5.0, (0.1, 100), 1e-6, rises=True)

    assert meet(step) == pytest.approx(2.0)
    assert meet(lambda x: 0.0) == pytest.approx(100)
    with pytest.raises(UnreachableError):
        meet(lambda x: 9.0)


@pytest.mark.parametrize(
    "cost",
    [lambda n: n, lambda n: n**0.1 * 42.5**0.9, lambda n: 0.0 if n < 43 else float("inf")],
    ids=["straight", "flat", "a jump"],
)
def test_largest_integer_from_any_guess(cost):
    for guess in (1, 17, 42, 43, 1000):
        assert largest_integer(cost, 42.5, guess, (1, 1000)) == 42


def test_largest_integer_may_be_the_last_of_the_range():
    assert largest_integer(lambda n: n, 5000, 7, (1, 1000)) == 1000


def test_largest_integer_of_millions_takes_few_steps():
    asked = []

    def cost(n):
        asked.append(n)
        return n**0.55

    most = math.floor(7890123.5)
    assert largest_integer(cost, 7890123.5**0.55, 7_500_000, (1, 10**12)) == most
    assert len(asked) <= 5


def test_largest_integer_rejects_what_is_out_of_reach():
    with pytest.raises(UnreachableError, match="0.5 cannot be reached: .* 1 and"):
        largest_integer(lambda n: n, 0.5, 7, (1, 1000))


def test_search_settles_for_the_nearest_of_a_cost_that_jitters():
    asked = []

    def cost(x):
        asked.append(x)
        return x * (1 + 5e-4 * math.sin(1e6 * x))

    found = meet_target(cost, 1.0, 0.9, (1e-3, 1e3), 1e-5, rises=True)
    assert len(asked) <= 20
    assert 1 - 16e-5 <= cost(found) <= 1


@pytest.mark.parametrize(
    ("target", "delta", "template", "steps"),
    [
        (1.0, 1e-5, settings(10, 60_000), 131_072),  # the sketch is a quarter off
        (2.16, 4e-10, settings(1101, 9_924_740), 37_483),  # the answers jitter
        (15.0, 2e-6, settings(7683, 8854), 299_436),
    ],
)
def test_few_distributions_are_formed_on_the_way_to_the_noise(
    monkeypatch, target, delta, template, steps
):
    formed = []
    original = pld._epsilon

    def counted(*arguments):
        formed.append(arguments[2])
        return original(*arguments)

    monkeypatch.setattr(pld, "_epsilon", counted)
    noise = noise_for_epsilon(target, delta, template, steps)
    check(target, delta, template, steps, noise)
    assert formed.count(pld._MOST_POINTS) <= 14  # 0.2 s each, those asked for twice are kept


@pytest.mark.parametrize("noise", [0.6, 1.0, 4.0])
def test_each_direction_is_dp_accountings_own(noise):
    both = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-4, sampling_prob=0.02
    ).self_compose(100)
    run = Segment(settings(20, 1000, noise), 100)
    assert epsilon([run], 1e-5, "pld").epsilon == pytest.approx(
        both.get_epsilon_for_delta(1e-5), rel=1e-3
    )


def test_an_added_example_counts_where_it_costs_more(monkeypatch):
    costs = {AdjacencyType.REMOVE: 1.0, AdjacencyType.ADD: 1.5}
    monkeypatch.setattr(pld, "_epsilon", lambda *arguments: costs[arguments[3]])
    counts = releases([Segment(settings(20, 1000, 1.0), 100)])
    assert pld.PldAccountant().epsilon(counts, 1e-5) == 1.5
