"""A report against its ledger: agreement, every kind of tampering, and what is missing."""

import json
import math

import pytest

from tfdp.privacy import Ledger, PrivacyPlan, PrivacyReport, verify
from tfdp.privacy.report import build_report


def plan(**changes):
    values = {
        "num_examples": 10_000,
        "batch_size": 100,
        "steps": 50,
        "clip_norm": 0.5,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
    }
    return PrivacyPlan(**{**values, **changes})


def run(folder, p, steps=3, **extra):
    """A folder with a ledger of so many steps, and the report on it."""
    with Ledger(folder) as ledger:
        for _ in range(steps):
            ledger.record(p.settings)
        build_report(p, ledger, **extra).write_json(folder / "privacy_report.json")
    return folder


def tamper(folder, **changes):
    path = folder / "privacy_report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def folder(tmp_path):
    return run(tmp_path, plan())


def test_an_honest_report_agrees(folder):
    result = verify(folder)
    assert result.agrees and result.differences == () and result.remarks == ()
    assert result.epsilon == pytest.approx(plan().epsilon_after(3), rel=1e-9)
    assert "agrees with" in str(result) and "NOT" not in str(result)
    assert verify(folder / "privacy_report.json") == result
    assert verify(str(folder)) == result


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_multiplier": 0},
        {"sampling": "none"},
        {"sampling": "fixed_size"},
        {"batch_size": 10_000},
        {"accountant": "rdp"},
        {"noise_multiplier": None, "epsilon": 2.0},
    ],
    ids=str,
)
def test_honest_reports_of_every_kind_agree(tmp_path, changes):
    result = verify(run(tmp_path, plan(**changes), counts={"bad": 1}, fixed_seed=True))
    assert result.agrees, str(result)


def test_a_run_without_steps_agrees(tmp_path):
    assert verify(run(tmp_path, plan(), steps=0)).epsilon == 0.0


def test_several_settings_agree_and_their_note_may_not_be_dropped(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.record(plan().settings)
        ledger.record(plan(batch_size=200).settings)
        build_report(plan(), ledger).write_json(tmp_path / "privacy_report.json")
    assert verify(tmp_path).agrees
    tamper(tmp_path, notes=[])
    assert "other settings" in str(verify(tmp_path))
    tamper(tmp_path, releases=[{"name": "means"}, {"name": "gradient"}])  # as of a last layer
    assert verify(tmp_path).agrees


@pytest.mark.parametrize(
    "key, value",
    [
        ("epsilon", 0.01),
        ("epsilon", None),
        ("epsilon_rdp", 0.01),
        ("epsilon_without_amplification", 0.1),
        ("noise_multiplier", 2.0),
        ("clip_norm", 0.25),
        ("num_examples", 20_000),
        ("steps", 2),
        ("noise_convention", "none"),
        ("expected_coverage", 0.5),
        ("attacker_true_positive_rate", {"0.01": 0.011, "0.001": 0.001}),
        ("segments", []),
        ("tensorflow_privacy_statement", "all is well"),
    ],
)
def test_a_changed_figure_is_named(folder, key, value):
    tamper(folder, **{key: value})
    result = verify(folder)
    assert not result.agrees
    assert any(text.startswith(key) for text in result.differences), str(result)
    assert "does NOT agree" in str(result)


def test_another_sampling_is_named(folder):
    tamper(folder, sampling="none", adjacency="zero_out")
    text = str(verify(folder))
    assert "sampling: none in the report, poisson recomputed" in text
    assert "adjacency: zero_out in the report, add_or_remove_one recomputed" in text


def test_epsilon_is_that_of_the_accountant_who_is_named(folder):
    tamper(folder, accountant="RDP (tensorflow-privacy)")
    text = verify(folder).differences[0]
    assert text.endswith(f"{plan().epsilon_after(3, 'rdp'):.8g} recomputed")
    tamper(folder, accountant="by eye")
    assert verify(folder).differences == (
        "accountant: by eye in the report, PLD (dp-accounting) recomputed",
    )


def test_both_figures_are_in_the_text(folder):
    tamper(folder, epsilon=0.125)
    [text] = verify(folder).differences
    assert text == f"epsilon: 0.125 in the report, {plan().epsilon_after(3):.8g} recomputed"


def test_a_changed_segment_is_named_to_the_field(folder):
    segments = json.loads((folder / "privacy_report.json").read_text())["segments"]
    segments[0]["steps"] = 1
    tamper(folder, segments=segments)
    assert verify(folder).differences == ("segments[1].steps: 1 in the report, 3 recomputed",)


def test_a_report_older_than_its_ledger_is_recognised(folder):
    with Ledger(folder) as ledger:
        ledger.record(plan().settings)
    result = verify(folder)
    assert not result.agrees
    assert "1 more steps: the report may simply be older" in str(result)


def test_a_tampered_ledger_is_a_clear_result(folder):
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"steps": 3', b'{"steps": 1'))
    result = verify(folder)
    assert not result.agrees and result.epsilon is None
    assert "line 4" in str(result) and "changed or damaged" in str(result)
    path.write_bytes(b"")
    assert "is empty" in str(verify(folder))


def test_other_versions_of_the_accountants_are_remarked_not_judged(folder):
    tamper(folder, versions={"dp-accounting": "0.1"}, tensorflow_privacy_statement="of old")
    result = verify(folder)
    assert result.agrees
    assert "made with dp-accounting 0.1" in str(result)


def test_a_ledger_elsewhere_can_be_named(folder):
    (folder / "model").mkdir()
    (folder / "privacy_report.json").rename(folder / "model" / "report.json")
    with pytest.raises(FileNotFoundError, match="no ledger .*ledger="):
        verify(folder / "model" / "report.json")
    assert verify(folder / "model" / "report.json", folder).agrees
    assert verify(folder / "model" / "report.json", folder / "ledger.jsonl").agrees


def test_a_missing_report_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no privacy report .*privacy_report.json"):
        verify(tmp_path)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "holds no JSON"),
        ("[1]", "no schema_version"),
        ('{"schema_version": 99}', "schema version 99, and this tfdp reads version 1"),
        ('{"schema_version": 1}', "not a complete privacy report: it has no 'num_examples'"),
    ],
)
def test_what_is_no_report_of_this_schema_is_rejected(folder, content, message):
    (folder / "privacy_report.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        verify(folder)


@pytest.mark.parametrize("delta", [None, 0, 2, "small"])
def test_a_senseless_delta_is_rejected(folder, delta):
    tamper(folder, delta=delta)
    with pytest.raises(ValueError, match="not a complete privacy report: delta"):
        verify(folder)


def test_a_report_reads_back_as_it_was_written(tmp_path):
    run(tmp_path, plan(noise_multiplier=0))
    report = PrivacyReport.read_json(tmp_path / "privacy_report.json")
    assert report["epsilon"] == math.inf
    assert report == build_report(plan(noise_multiplier=0), Ledger.read(tmp_path))


@pytest.mark.parametrize("key", ["covered", "not_covered", "assumptions"])
@pytest.mark.parametrize("value", [[], ["everything"]], ids=["empty", "other"])
def test_changed_words_are_named(folder, key, value):
    tamper(folder, **{key: value})
    assert any(text.startswith(key) for text in verify(folder).differences)


@pytest.mark.parametrize(
    "unit, agrees",
    [
        ("one example", True),
        ("one example (a picture)", True),
        ("one user: all examples with one user id, one of them used in a step", False),
        ("a hospital", False),
    ],
)
def test_the_unit_is_judged_its_name_is_not(folder, unit, agrees):
    tamper(folder, unit=unit)
    result = verify(folder)
    assert result.agrees == agrees
    assert agrees or result.differences[0].startswith("unit: ")


@pytest.mark.parametrize("steps", [0, 3])
def test_users_agree_and_may_not_become_examples(tmp_path, steps):
    run(tmp_path, plan(examples_per_user=3), steps=steps)
    assert verify(tmp_path).agrees
    tamper(tmp_path, unit="one example")
    assert not verify(tmp_path).agrees


def test_the_note_on_a_seed_that_the_ledger_knows_may_not_be_dropped(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.record(plan().settings, stream="of a seed", step=0)
        build_report(plan(), ledger).write_json(tmp_path / "privacy_report.json")
    assert verify(tmp_path).agrees
    tamper(tmp_path, notes=[])
    assert "a fixed seed was used" in str(verify(tmp_path))


@pytest.mark.parametrize(
    "changes",
    [{"target_epsilon": 1.0}, {"target_epsilon": 5.0}, {"planned_steps": 90}, {"planned_steps": 9}],
    ids=str,
)
def test_a_target_and_planned_steps_must_fit_the_noise(tmp_path, changes):
    run(tmp_path, plan(noise_multiplier=None, epsilon=2.0))
    assert verify(tmp_path).agrees
    tamper(tmp_path, **changes)
    assert any("planned_steps" in text for text in verify(tmp_path).differences)


def test_words_of_another_tfdp_are_remarked_not_judged(folder):
    values = json.loads((folder / "privacy_report.json").read_text())
    tamper(folder, covered=["all"], versions={**values["versions"], "tfdp": "0.0.9"})
    result = verify(folder)
    assert result.agrees and "another version of tfdp worded them (0.0.9" in str(result)
    tamper(folder, unit="a row")
    assert verify(folder).agrees and "were not compared" in str(verify(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"notes": None},
        {"notes": 5},
        {"target_epsilon": "3.0"},
        {"segments": 5},
        {"segments": [{}]},
        {"segments": None},
        {"versions": [1]},
        {"planned_steps": "50"},
    ],
    ids=str,
)
def test_what_no_report_holds_is_said_to_be_none(folder, changes):
    tamper(folder, **changes)
    with pytest.raises(ValueError, match=f"is not a privacy report: {next(iter(changes))} is"):
        verify(folder)


def test_a_report_without_notes_is_not_complete(folder):
    path = folder / "privacy_report.json"
    values = json.loads(path.read_text())
    del values["notes"]
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="not a complete privacy report: it has no 'notes'"):
        verify(folder)
