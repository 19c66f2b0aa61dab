"""The report: figures from the ledger, in words and in JSON."""

import json
import math

import numpy as np
import pytest

from tfdp.privacy import Ledger, PrivacyPlan, Segment, StepSettings
from tfdp.privacy.interpretation import (
    expected_coverage,
    expected_epochs,
    meaning,
    most_true_positives,
)
from tfdp.privacy.report import build_report


def made(plan, steps):
    ledger = Ledger()
    for _ in range(steps):
        ledger.record(plan.settings)
    return ledger


def plan(**changes):
    values = {
        "num_examples": 60_000,
        "batch_size": 256,
        "steps": 1170,
        "clip_norm": 0.5,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
    }
    return PrivacyPlan(**{**values, **changes})


def test_the_report_holds_what_its_schema_promises(tmp_path):
    report = build_report(plan(), made(plan(), 1170), counts={"bad_records": {"truncated": 3}})
    path = tmp_path / "new" / "privacy_report.json"
    report.write_json(path)
    values = json.loads(path.read_text())
    assert values == report.to_dict()
    assert values["schema_version"] == 1
    assert values["epsilon"] == values["epsilon_pld"] == pytest.approx(0.7834, abs=1e-4)
    assert values["epsilon_rdp"] == pytest.approx(1.1322, abs=1e-4)
    assert values["epsilon_gaussian"] is None
    assert values["epsilon_without_amplification"] == pytest.approx(11.48, abs=0.005)
    assert values["accountant"] == "PLD (dp-accounting)"
    assert (values["delta"], values["noise_multiplier"]) == (1e-5, 1.0)
    assert (values["clip_norm"], values["noise_standard_deviation"]) == (0.5, 0.5)
    assert values["sampling_probability"] == 256 / 60_000
    assert (values["expected_batch_size"], values["num_examples"]) == (256, 60_000)
    assert (values["steps"], values["planned_steps"]) == (1170, 1170)
    assert (values["sampling"], values["adjacency"]) == ("poisson", "add_or_remove_one")
    assert values["counts"] == {"bad_records": {"truncated": 3}}
    assert values["versions"]["dp-accounting"] and values["versions"]["tensorflow-privacy"]
    assert [segment["steps"] for segment in values["segments"]] == [1170]
    assert values["notes"] == []


def test_tensorflow_privacys_own_statement_is_in_it():
    text = build_report(plan(), made(plan(), 1170))["tensorflow_privacy_statement"]
    assert "DP-SGD performed over 60000 examples with 256 examples per iteration" in text
    assert "Epsilon assuming Poisson sampling (*):                      1.132" in text
    assert "Epsilon with each example occurring once per epoch:        12.302" in text
    fixed = plan(sampling="fixed_size")
    assert build_report(fixed, made(fixed, 3))["tensorflow_privacy_statement"] is None


def test_enormous_noise_has_a_report_though_the_statement_rounds_below_zero():
    p = plan(noise_multiplier=1e7, batch_size=10, num_examples=1000)
    report = build_report(p, made(p, 3))
    assert report["tensorflow_privacy_statement"] is None and report["epsilon"] < 1e-3


def test_the_statement_counts_the_updates_that_were_made():
    """ceil(epochs / q) of its own formula must not round up to one step more."""
    rows = []
    for batch, examples, steps in [(7, 1000, 3), (3, 70, 49), (333, 10_007, 101)]:
        p = plan(batch_size=batch, num_examples=examples, delta=1e-6)
        text = build_report(p, made(p, steps))["tensorflow_privacy_statement"]
        rows.append((text, p.epsilon_after(steps, "rdp")))
    for text, epsilon in rows:
        assert f"{epsilon:12.3f}" in text


def test_the_noise_convention_is_stated():
    report = build_report(plan(), made(plan(), 1))
    assert (
        "standard deviation on the clipped sum = noise_multiplier * clip_norm"
        in (report["noise_convention"])
    )
    assert "standard deviation 0.5 on the clipped sum" in report.summary_text()


def test_epsilon_is_of_the_updates_made_not_of_the_plan():
    report = build_report(plan(), made(plan(), 37))
    assert (report["steps"], report["planned_steps"]) == (37, 1170)
    assert report["epsilon"] == plan().epsilon_after(37)


def test_unsampled_data_carry_the_figure_without_amplification():
    passes = plan(sampling="none")
    report = build_report(passes, made(passes, 1170))
    assert report["epsilon"] == pytest.approx(11.48, abs=0.005)
    assert report["epsilon"] == report["epsilon_without_amplification"]
    assert "no amplification" in report.summary_text()


def test_changed_settings_are_all_counted_and_said():
    ledger = made(plan(), 500)
    later = plan(batch_size=512)
    ledger.record(later.settings)
    report = build_report(later, ledger)
    assert report["steps"] == 501
    assert report["epsilon"] > plan().epsilon_after(500)
    assert "other settings" in report["notes"][0]
    assert report["expected_batch_size"] == 512
    assert report["tensorflow_privacy_statement"].count("DP-SGD performed") == 2


def test_fixed_seeds_are_stated():
    report = build_report(plan(), made(plan(), 1), fixed_seed=True)
    assert any("fixed seed" in note for note in report["notes"])
    assert "fixed seed" in report.summary_text()


def test_no_noise_is_infinite_in_words_and_in_json(tmp_path):
    bare = plan(noise_multiplier=0)
    report = build_report(bare, made(bare, 2))
    assert report["epsilon"] == math.inf
    report.write_json(tmp_path / "report.json")
    values = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert values["epsilon"] == "inf" and float(values["epsilon"]) == math.inf
    assert values["attacker_true_positive_rate"] == {"0.01": 1.0, "0.001": 1.0}
    assert "(inf, 1e-05)" in str(report)
    assert "no guarantee" in str(report)


def test_without_steps_nothing_is_spent():
    report = build_report(plan(), Ledger())
    assert report["epsilon"] == 0.0
    assert report["tensorflow_privacy_statement"] is None
    assert "0 of 1170 planned" in report.summary_text()
    assert "times on average, 0.00% of them" in report.summary_text()


def test_the_summary_states_what_matters():
    text = build_report(
        plan(), made(plan(), 1170), unit="one picture with its caption"
    ).summary_text()
    for part in (
        "(epsilon, delta) = (0.7834, 1e-05)",
        "PLD (dp-accounting); RDP 1.132, PLD 0.7834, without amplification 11.48",
        "Poisson, each example included independently with probability q; q = 256/60000 = 0.004267",
        "1170 of 1170 planned; each example used 4.99 times on average, 99.33% of them",
        "protects    one example (one picture with its caption); datasets that differ by the pre",
        "every weight and optimizer state of the model, at every step and in every checkpoint",
        "training loss and metrics",
        "people with several examples",
    ):
        assert part in text


def test_a_report_needs_a_delta():
    with pytest.raises(ValueError, match="give the plan its delta"):
        build_report(plan(delta=None), Ledger())


def test_coverage_and_epochs_of_poisson_sampling():
    segment = Segment(StepSettings(59_904, 128, 1.0, 1.0), 468)
    assert expected_epochs([segment]) == pytest.approx(1.0)
    assert expected_coverage([segment]) == pytest.approx(0.6325, abs=5e-5)
    q, n = 128 / 59_904, 59_904
    assert n * q == pytest.approx(128)
    assert math.sqrt(n * q * (1 - q)) == pytest.approx(11.30, abs=0.005)


def test_coverage_agrees_with_a_simulation():
    """False alarm below 1e-9: 8 sigma of a binomial share over 2000 records."""
    settings = StepSettings(2000, 40, 1.0, 1.0)
    rng = np.random.default_rng(5)
    hit = (rng.random((60, 2000)) < settings.sampling_probability).any(axis=0).mean()
    expected = expected_coverage([Segment(settings, 60)])
    assert abs(hit - expected) < 8 * math.sqrt(expected * (1 - expected) / 2000)


def test_coverage_of_other_samplings():
    def of(sampling, batch, steps):
        settings = StepSettings(100, batch, 1.0, 1.0, sampling)
        return expected_coverage([Segment(settings, steps)])

    assert of("full_batch", 100, 1) == 1.0
    assert of("none", 10, 5) == pytest.approx(0.5)
    assert of("none", 10, 50) == 1.0
    assert of("arbitrary", 10, 5) is None
    assert expected_coverage([]) == 0.0


@pytest.mark.parametrize(
    ("rate", "epsilon", "delta", "expected"),
    [
        (0.01, 1.0, 1e-5, math.e * 0.01 + 1e-5),
        (0.01, 0.0, 0.0, 0.01),
        (0.001, 8.0, 1e-5, 1 - math.exp(-8) * (1 - 1e-5 - 0.001)),
        (0.01, math.inf, 1e-5, 1.0),
        (0.01, 1e4, 1e-5, 1.0),
    ],
)
def test_the_attackers_best_rate(rate, epsilon, delta, expected):
    assert most_true_positives(rate, epsilon, delta) == pytest.approx(expected, rel=1e-12)


def test_a_report_names_whom_it_holds_against_and_what_it_rests_on_everywhere(tmp_path):
    """One list, in JSON and in words: the key of the noise, its floating point, a public N."""
    report = build_report(plan(), made(plan(), 3))
    assumed, text = report.to_dict()["assumptions"], report.summary_text()
    for part in (
        "60,000, is public",
        "independently with probability q",
        "128-bit key is secret",
        "rounding of flo",
    ):
        assert any(part in line for line in assumed)
    assert all(line in text for line in assumed)
    assert "not the key (computationally bounded" in text
    assert "unlimited computing power" not in text
    secure = plan(secure=True)
    rest = build_report(secure, made(secure, 3))["assumptions"]
    assert [line for line in assumed if line not in rest] == [
        "attacks on the rounding of floating-point noise are not considered"
    ]
    assert any("sums of gradients are not considered" in line for line in rest)


def test_no_guarantee_covers_nothing_and_rests_on_nothing():
    bare = plan(noise_multiplier=0)
    report = build_report(bare, made(bare, 2))
    assert (report["covered"], report["assumptions"]) == ([], [])
    text = report.summary_text()
    assert "nobody: epsilon is infinite" in text and "nothing: epsilon is infinite" in text
    assert "every weight" not in text and "there is no promise at all" in text


def test_exact_counts_are_not_called_covered():
    report = build_report(plan(), made(plan(), 1))
    assert "exact counts of private examples" in report["not_covered"][0]
    assert "those who hold the data" in report.summary_text()


def test_where_users_are_protected_nothing_speaks_of_single_examples():
    users = plan(examples_per_user=4)
    report = build_report(users, made(users, 3), unit="one customer")
    assert report["unit"].startswith("one user: all examples with one user id, at most 4")
    assert report["unit"].endswith("(one customer)") and report["examples_per_user"] == 4
    assert report["tensorflow_privacy_statement"] is None
    assert "all examples of a user have the same user id" in report["assumptions"]
    text = report.summary_text()
    for wrong in (
        "one example",
        "each example",
        "no example",
        "all other examples",
        "examples of one",
    ):
        assert wrong not in text
    for right in (
        "differ by the presence of one user",
        "each user included independently with probability q",
        "users who belong together is at most 2:",
        "people with several user ids, and groups of people",
        "the number of users, 60,000, is public",
    ):
        assert right in text


def test_a_fixed_seed_is_known_from_the_ledger():
    ledger = Ledger()
    ledger.record(plan().settings, stream="of a seed", step=0)
    ledger.record(plan().settings)
    assert sum("fixed seed" in note for note in build_report(plan(), ledger)["notes"]) == 1
    assert build_report(plan(), made(plan(), 2))["notes"] == []


def test_epsilon_and_delta_are_properties_and_explained():
    report = build_report(plan(), made(plan(), 1170))
    assert (report.epsilon, report.delta) == (report["epsilon"], 1e-5)
    bare = plan(noise_multiplier=0)
    written = build_report(bare, made(bare, 1)).to_dict()
    assert type(report)(written).epsilon == math.inf
    text = report.summary_text()
    assert f"a factor of e^epsilon = {math.exp(report.epsilon):.4g}, up or down" in text
    assert "up to delta = 1e-05 there is no promise" in text
    assert "e^epsilon = e^750" in meaning(750.0, 1e-5)
