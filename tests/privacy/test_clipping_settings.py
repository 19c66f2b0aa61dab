"""Ways of clipping in the plan: what they cost, and how they are kept."""

import json
import math

import pytest

from tfdp.privacy import (
    AutomaticClipping,
    Ledger,
    PerLayerClipping,
    PrivacyPlan,
    QuantileClipping,
    verify,
)
from tfdp.privacy.report import build_report

SIZES = {"num_examples": 1000, "batch_size": 100, "steps": 10, "delta": 1e-5}


def plan(clip_norm=1.0, **options):
    return PrivacyPlan(**SIZES, clip_norm=clip_norm, **{"noise_multiplier": 1.0, **options})


def test_the_count_leaves_the_sum_the_noise_of_andrew_et_al():
    """Noise 10 on the count and (1 - 1/400)^-1/2 = 1.001252 on the sum cost what 1 does."""
    settings = plan(clipping=QuantileClipping(count_noise=10.0)).settings
    assert settings.gradient_noise_multiplier == pytest.approx(1.001252, abs=5e-7)
    joint = settings.gradient_noise_multiplier**-2 + (2 * settings.count_noise) ** -2
    assert joint**-0.5 == pytest.approx(1.0)


@pytest.mark.parametrize("batch_size, noise, expected", [(1000, 1.0, 50.0), (20, 1.0, 5.0)])
def test_the_noise_on_the_count_is_a_twentieth_of_the_batch_and_costs_half_a_percent_at_most(
    batch_size, noise, expected
):
    settings = PrivacyPlan(
        1000, batch_size, 10, 1.0, noise_multiplier=noise, clipping="quantile"
    ).settings
    assert settings.count_noise == expected
    assert 1 < settings.gradient_noise_multiplier <= 1.0051


def test_every_way_of_clipping_costs_the_same_epsilon_at_the_same_multiplier():
    flat = plan().epsilon
    for clipping in ("automatic", "per_layer", "quantile", {"kind": "quantile", "quantile": 0.9}):
        assert plan(clipping=clipping).epsilon == flat
    target = plan(noise_multiplier=None, epsilon=2.0, clipping="quantile")
    assert target.epsilon <= 2.0
    assert target.settings.gradient_noise_multiplier > target.noise_multiplier


def test_bounds_by_layer_fix_the_sensitivity():
    by_layer = plan({"encoder": 0.3, "head": 0.4})
    assert by_layer.clip_norm == pytest.approx(0.5)
    assert by_layer.clipping == PerLayerClipping({"encoder": 0.3, "head": 0.4})
    with pytest.raises(ValueError, match="root of the sum of squares"):
        plan(1.0, clipping=PerLayerClipping({"encoder": 0.3, "head": 0.4}))
    with pytest.raises(ValueError, match="per_layer"):
        plan({"encoder": 0.3}, clipping="automatic")


@pytest.mark.parametrize(
    "clipping, message",
    [
        ("median", "clipping must be one of"),
        ({"kind": "automatic", "gama": 1.0}, "gama"),
        (QuantileClipping(count_noise=0.5), "count_noise"),
        ({"kind": "quantile", "quantile": 1.5}, "quantile"),
        ({"kind": "automatic", "gamma": 0.0}, "gamma"),
        ({"kind": "per_layer", "bounds": {"a": -1.0}}, "bounds"),
    ],
)
def test_what_makes_no_sense_is_rejected(clipping, message):
    with pytest.raises(ValueError, match=message):
        plan(clipping=clipping)


def test_secure_noise_and_a_noisy_count_exclude_each_other():
    with pytest.raises(ValueError, match="counts examples"):
        plan(clipping="quantile", secure=True)
    assert plan(clipping="automatic", secure=True).secure


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clipping": AutomaticClipping(gamma=0.1)},
        {"clip_norm": {"a/b": 0.3, "c": 0.4}},
        {"clipping": "per_layer"},
        {"clipping": QuantileClipping(0.7, 0.1)},
    ],
)
def test_plan_ledger_and_report_keep_it_and_agree(tmp_path, options):
    made = plan(**options)
    assert PrivacyPlan.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    with Ledger(tmp_path) as ledger:
        ledger.record(made.settings)
        report = build_report(made, ledger)
    assert Ledger.read(tmp_path).entries[0].settings == made.settings
    report.write_json(tmp_path / "privacy_report.json")
    assert verify(tmp_path).agrees, str(verify(tmp_path))
    assert report["clipping"] == made.clipping.to_dict()
    assert report["sensitivity"] == pytest.approx(made.clip_norm)
    report.write_html(tmp_path / "report.html")
    assert "clipping" in report.summary_text()


def test_a_ledger_of_flat_clipping_reads_as_it_always_did(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.record(plan().settings)
    assert "clipping" not in (tmp_path / "ledger.jsonl").read_text()


def test_the_report_names_both_noises_of_a_quantile():
    report = build_report(plan(clipping="quantile"), Ledger())
    text = report.summary_text()
    assert "0.5 quantile" in text and f"{report['count_noise_standard_deviation']:.5g}" in text
    assert report["noise_standard_deviation"] == report["gradient_noise_multiplier"] > 1.0
    assert math.isclose(report["sensitivity"], 1.0) and "count" in report["noise_convention"]
