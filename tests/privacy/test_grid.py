"""Secure noise: its grid, what it costs, and how plan, ledger and report carry it."""

import json
import math

import numpy as np
import pytest

from tfdp.privacy import Ledger, PrivacyPlan, StepSettings, verify
from tfdp.privacy.grid import Grid
from tfdp.privacy.report import build_report


def plan(**changes):
    values = {
        "num_examples": 60_000,
        "batch_size": 256,
        "steps": 1170,
        "clip_norm": 0.7,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "secure": True,
    }
    return PrivacyPlan(**{**values, **changes})


@pytest.mark.parametrize("clip", [1e-4, 0.7, 1.0, 300.0])
@pytest.mark.parametrize("noise", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("weights", [1, 1000, 10**9])
def test_the_grid_is_within_what_the_sensitivity_charges(clip, noise, weights):
    grid = Grid.of(clip, noise, weights)
    assert math.log2(grid.step).is_integer()
    charged = StepSettings(100, 10, noise, clip, secure=True).sensitivity
    assert clip + grid.step * math.sqrt(weights) <= charged * clip
    assert clip + 2 * grid.step * math.sqrt(weights) > charged * clip  # and not finer than that
    # Variance less 9 steps is still the planned one; see tfdp.privacy.grid.
    assert (grid.deviation**2 - 9) * grid.step**2 >= (noise * clip) ** 2
    assert grid.deviation * grid.step <= noise * clip * 1.02


def test_noise_that_does_not_fit_the_grid_is_rejected():
    with pytest.raises(ValueError, match="noise_multiplier 0.0001 on 4 weights"):
        Grid.of(1.0, 1e-4, 4)
    with pytest.raises(ValueError, match="secure=False"):
        Grid.of(1.0, 1e9, 10**12)


def test_one_example_moves_a_rounded_sum_by_no_more_than_charged():
    rng = np.random.default_rng(0)
    grid = Grid.of(1.0, 1.0, 5000)
    for _ in range(20):
        rest, own = rng.normal(size=(2, 5000))
        own /= np.linalg.norm(own)
        with_it, without = np.rint((rest + own) / grid.step), np.rint(rest / grid.step)
        assert np.linalg.norm(with_it - without) * grid.step <= 1 + 2**-14


def test_the_rounding_is_charged():
    secure, plain = plan(), plan(secure=False)
    less = plan(secure=False, noise_multiplier=1 / (1 + 2**-14))
    assert plain.epsilon < secure.epsilon < plain.epsilon * 1.0005
    assert secure.epsilon == pytest.approx(less.epsilon, 1e-9)
    target = plan(noise_multiplier=None, epsilon=1.0)
    assert 0.999 < target.epsilon <= 1.0


def test_without_noise_or_with_other_types_it_is_rejected():
    with pytest.raises(ValueError, match="noise_multiplier is 0"):
        plan(noise_multiplier=0)
    with pytest.raises(TypeError, match="secure must be True or False"):
        plan(secure=1)


def test_plan_ledger_and_report_carry_it(tmp_path):
    p = plan()
    assert PrivacyPlan.from_dict(json.loads(json.dumps(p.to_dict()))) == p
    with Ledger(tmp_path) as ledger:
        ledger.record(p.settings)
        report = build_report(p, ledger)
        report.write_json(tmp_path / "privacy_report.json")
        report.write_html(tmp_path / "privacy_report.html")
    assert Ledger.read(tmp_path).segments()[0].settings.secure
    assert "discrete Gaussian" in report["noise_mechanism"]
    assert "discrete Gaussian" in report.summary_text()
    assert "2^-14 more sensitivity" in (tmp_path / "privacy_report.html").read_text()
    assert report["notes"] == [] and verify(tmp_path).agrees


def test_a_report_that_claims_it_wrongly_is_noticed(tmp_path):
    p = plan(secure=False)
    with Ledger(tmp_path) as ledger:
        ledger.record(p.settings)
        build_report(p, ledger).write_json(tmp_path / "privacy_report.json")
    assert "secure" not in (tmp_path / "ledger.jsonl").read_text()
    path = tmp_path / "privacy_report.json"
    values = json.loads(path.read_text())
    claimed = build_report(plan(), Ledger())["noise_mechanism"]
    path.write_text(json.dumps({**values, "noise_mechanism": claimed}))
    assert any("noise_mechanism" in line for line in verify(tmp_path).differences)
