"""Group privacy: never below the truth where it can be computed, and exact at full batch."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from tfdp.privacy import Ledger, PrivacyPlan, Segment, StepSettings, verify
from tfdp.privacy.accounting.gaussian import epsilon_of_mu
from tfdp.privacy.groups import epsilon_of_group
from tfdp.privacy.report import build_report


def segment(noise, batch, examples, steps, **more):
    return Segment(StepSettings(examples, batch, noise, 1.0, **more), steps)


def true_epsilon(noise, rate, size, delta):
    """Of one step on a group whose records all move the sum the same way, by quadrature."""
    points = np.linspace(-12 * noise, size + 12 * noise, 200_001)
    null = stats.norm.pdf(points, 0, noise)
    drawn = stats.binom.pmf(range(size + 1), size, rate)
    mixed = sum(p * stats.norm.pdf(points, j, noise) for j, p in enumerate(drawn))
    step = points[1] - points[0]

    def gap(epsilon):
        forth = np.maximum(mixed - math.exp(epsilon) * null, 0).sum() * step
        back = np.maximum(null - math.exp(epsilon) * mixed, 0).sum() * step
        return max(forth, back) - delta

    return optimize.brentq(gap, 0, 60) if gap(0) > 0 else 0.0


@pytest.mark.parametrize(
    "noise, rate, size", list(itertools.product([0.7, 2.0], [0.02, 0.5], [2, 5]))
)
def test_a_group_is_never_promised_more_than_it_gets(noise, rate, size):
    run = segment(noise, round(100 * rate), 100, 1)
    truth = true_epsilon(noise, rate, size, 1e-4)
    for accountant in ("rdp", "auto"):
        assert epsilon_of_group([run], 1e-4, size, accountant) >= truth


def test_at_full_batch_a_group_is_one_large_example():
    run = segment(4.0, 100, 100, 9)  # mu = 3 / 4 for one record
    for size in (1, 2, 8):
        found = epsilon_of_group([run], 1e-5, size, "auto")
        assert found == pytest.approx(epsilon_of_mu(0.75 * size, 1e-5), rel=1e-9)


def test_groups_of_a_poisson_run_cost_about_size_times_as_much_and_more():
    run = [segment(1.0, 256, 60_000, 1170)]
    one, two, four = (epsilon_of_group(run, 1e-5, size) for size in (1, 2, 4))
    assert one == pytest.approx(1.1322, abs=1e-4)
    assert 2 * one < two < 3 * one and two < four < 8 * one
    assert epsilon_of_group(run, 1e-5, 1000) < math.inf


def test_edges_and_other_samplings():
    assert epsilon_of_group([], 1e-5, 3) == 0.0
    assert epsilon_of_group([segment(0.0, 1, 100, 1)], 1e-5, 3) == math.inf
    fixed = [segment(3.0, 5, 100, 10, sampling="fixed_size")]
    assert epsilon_of_group(fixed, 1e-5, 2) > epsilon_of_group(fixed, 1e-5, 1)
    with pytest.raises(ValueError, match="size must be a whole number"):
        epsilon_of_group(fixed, 1e-5, 0)


def test_the_report_says_what_people_with_several_examples_get(tmp_path):
    plan = PrivacyPlan(60_000, 256, 1170, 1.0, noise_multiplier=1.0, delta=1e-5)
    with Ledger(tmp_path) as ledger:
        for _ in range(3):
            ledger.record(plan.settings)
        report = build_report(plan, ledger, public=["ImageNet, for the first weights"])
    spent = [Segment(plan.settings, 3)]
    for size, epsilon in report["epsilon_of_groups"].items():
        assert epsilon == epsilon_of_group(spent, 1e-5, int(size))
    text = report.summary_text()
    assert "epsilon for examples of one person is at most 2: " in text
    assert "ImageNet, for the first weights: spends no privacy" in text
    report.write_json(tmp_path / "privacy_report.json")
    report.write_html(tmp_path / "privacy_report.html")
    page = (tmp_path / "privacy_report.html").read_text()
    assert "Several examples of one person" in page and "ImageNet, for the first weights" in page
    assert verify(tmp_path).agrees
    lie = {**report.values, "epsilon_of_groups": {"2": 0.1, "4": 0.2, "8": 0.3}}
    type(report)(lie).write_json(tmp_path / "privacy_report.json")
    assert any("epsilon_of_groups.2" in line for line in verify(tmp_path).differences)


def test_users_as_units_are_named_and_never_mixed_with_examples():
    plan = PrivacyPlan(1000, 50, 10, 1.0, noise_multiplier=1.0, delta=1e-5, examples_per_user=4)
    ledger = Ledger()
    ledger.record(plan.settings)
    report = build_report(plan, ledger)
    assert report["unit"].startswith("one user: all examples with one user id, at most 4")
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
    assert Ledger.from_dict(ledger.to_dict()).segments() == ledger.segments()
    record = PrivacyPlan(1000, 50, 10, 1.0, noise_multiplier=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="one user cannot be composed"):
        ledger.record(record.settings)
    with pytest.raises(ValueError, match="examples_per_user must be a whole number"):
        PrivacyPlan(10, 5, 1, 1.0, noise_multiplier=1.0, examples_per_user=0)
