"""`python -m launch.privacy_report`: the report anew from config and ledger, and nothing hidden."""

import csv
import json
import re

import pytest
from absl import flags
from absl.testing import flagsaver

from launch import privacy_report
from tests.conftest import child_code
from tests.forks import Fork
from tfdp.privacy import Ledger, PrivacyPlan, Segment, StepSettings, epsilon, verify
from tfdp.privacy.report import build_report
from tfdp.privacy.report_text import SEED_NOTE
from tfdp.transfer.release_budget import whole_budget
from tfdp.transfer.studies import Candidate, Chosen, record_export
from tfdp.transfer.studies.study import Cell
from tfdp.transfer.studies.study_results import spent_text

PRIVACY = {
    "num_examples": 1000,
    "batch_size": 50,
    "steps": 20,
    "clip_norm": 1.0,
    "epsilon": 3.0,
    "delta": 1e-5,
    "noise_multiplier": None,
}


@pytest.fixture
def folder(tmp_path):
    """What a run of five steps leaves, without its report."""
    config = {"privacy": PRIVACY, "training": {"seed": None}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    record(tmp_path, 5)
    return tmp_path


def record(folder, steps):
    with Ledger(folder) as ledger:
        for _ in range(steps):
            ledger.record(PrivacyPlan(**PRIVACY).settings)


def original(folder, **extra):
    """The report as the run itself wrote it."""
    report = build_report(PrivacyPlan(**PRIVACY), Ledger.read(folder), **extra)
    report.write_json(folder / "privacy_report.json")
    return report


def read(folder):
    return json.loads((folder / "privacy_report.json").read_text())


def launch(folder, *arguments):
    with flagsaver.flagsaver():
        flags.FLAGS(["launch.privacy_report", f"--workdir={folder}", *arguments])
        privacy_report.main([])


def refusal(capsys, folder, *arguments):
    """The line that the launch ends with, having changed no file."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SystemExit) as end:
        launch(folder, *arguments)
    assert end.value.code == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ")
    return err


def test_config_and_ledger_are_enough(folder, capsys):
    launch(folder)
    plan = PrivacyPlan(**PRIVACY)
    values = read(folder)
    assert values["epsilon"] == pytest.approx(plan.epsilon_after(5), rel=1e-9)
    assert (values["steps"], values["planned_steps"], values["target_epsilon"]) == (5, 20, 3.0)
    assert "made anew" in values["notes"][-1]
    assert f"ε = {values['epsilon']:.4g}" in (folder / "privacy_report.html").read_text()
    assert f"(epsilon, delta) = ({values['epsilon']:.4g}, 1e-05)" in capsys.readouterr().out
    assert verify(folder).agrees


def test_the_runs_own_report_comes_back_to_the_byte(folder):
    original(
        folder, counts={"bad_records": {"truncated": 2}}, unit="one picture", notes=["by hand"]
    )
    before = (folder / "privacy_report.json").read_bytes()
    launch(folder)
    launch(folder)
    assert (folder / "privacy_report.json").read_bytes() == before
    assert "truncated: 2" in (folder / "privacy_report.html").read_text()


def test_a_machine_that_calibrates_with_another_rounding_agrees(folder):
    (folder / "ledger.jsonl").unlink()
    plan = PrivacyPlan(**PRIVACY).to_dict()
    theirs = PrivacyPlan.from_dict({**plan, "noise_multiplier": plan["noise_multiplier"] + 1e-12})
    with Ledger(folder) as ledger:
        ledger.record(theirs.settings)
        build_report(theirs, ledger).write_json(folder / "privacy_report.json")
    launch(folder)
    assert read(folder)["notes"] == []


def test_a_fixed_seed_is_told_from_the_config(folder):
    config = {"privacy": PRIVACY, "training": {"seed": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    launch(folder)
    assert "a fixed seed was used" in read(folder)["notes"][0]


def test_a_report_that_hides_the_seed_is_rejected(folder, capsys):
    original(folder)
    config = {"privacy": PRIVACY, "training": {"seed": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    assert "the report lacks 'a fixed seed" in refusal(capsys, folder)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("epsilon", 0.5, "epsilon: 0.5 in the report"),
        ("delta", 1e-7, "delta: 1e-07 in the report, 1e-05 recomputed"),
        ("planned_steps", 5, "planned_steps: 5 in the report, 20 recomputed"),
        ("target_epsilon", 0.5, "target_epsilon: 0.5 in the report, 3 recomputed"),
    ],
)
def test_a_report_that_says_otherwise_stays_until_told(folder, capsys, key, value, message):
    original(folder)
    path = folder / "privacy_report.json"
    path.write_text(json.dumps({**read(folder), key: value}))
    text = refusal(capsys, folder)
    assert message in text and "Nothing was written; --overwrite replaces it." in text
    launch(folder, "--overwrite")
    assert read(folder)[key] != value
    assert verify(folder).agrees


def test_an_older_report_is_rejected_and_replaced_on_demand(folder, capsys):
    original(folder)
    record(folder, 1)
    assert "steps: 5 in the report, 6 recomputed" in refusal(capsys, folder)
    launch(folder, "--overwrite")
    assert read(folder)["steps"] == 6


def test_a_report_that_cannot_be_read_is_rejected_and_replaced_on_demand(folder):
    (folder / "privacy_report.json").write_text("{")
    with pytest.raises(ValueError, match="holds no JSON .*--overwrite replaces it"):
        launch(folder)
    launch(folder, "--overwrite")
    assert verify(folder).agrees


def test_a_run_may_be_going_on(folder):
    with Ledger(folder) as ledger:
        ledger.record(PrivacyPlan(**PRIVACY).settings)
        launch(folder)
    assert read(folder)["steps"] == 6


@pytest.mark.parametrize("name", ["config.json", "ledger.jsonl"])
def test_what_is_missing_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"there is no .*{name}: "):
        launch(folder, "--overwrite")
    assert not (folder / "privacy_report.json").exists()


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "holds no JSON"),
        ("[]", "no section privacy"),
        ('{"privacy": 3}', "no section privacy"),
        (json.dumps({"privacy": {**PRIVACY, "delta": None}}), "delta"),
    ],
)
def test_a_config_that_is_none_is_rejected(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        launch(folder)


def test_a_changed_ledger_is_rejected_even_with_overwrite(folder):
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"steps": 5', b'{"steps": 1'))
    with pytest.raises(ValueError, match="line 6 .*changed or damaged"):
        launch(folder, "--overwrite")
    assert not (folder / "privacy_report.json").exists()


def test_no_folder_is_made_where_none_was(tmp_path):
    workdir = tmp_path / "nowhere"
    code, out, err = Fork(child_code("launch.privacy_report"), f"--workdir={workdir}").outcome()
    assert code == 1 and out == ""
    assert err.splitlines()[-1].startswith("error: there is no folder ")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_workdir_must_be_named():
    with flagsaver.flagsaver():
        flags.FLAGS(["launch.privacy_report"])
        with pytest.raises(ValueError, match="--workdir is missing"):
            privacy_report.main([])


@pytest.mark.parametrize("flag", ["--delta=1e-6", "--output=elsewhere"])
def test_flags_of_sums_are_rejected_for_a_single_run(folder, flag):
    with pytest.raises(ValueError, match=f"{flag.split('=')[0]} is for the sum over several"):
        launch(folder, flag)


def second_run(tmp_path_factory, steps=7):
    other = tmp_path_factory.mktemp("second")
    (other / "config.json").write_text(json.dumps({"privacy": {**PRIVACY, "delta": 1e-6}}))
    record(other, steps)
    return other


def test_several_runs_are_added_up_and_left_as_they_are(folder, tmp_path_factory, capsys):
    other, output = second_run(tmp_path_factory), tmp_path_factory.mktemp("sum") / "new"
    before = {path: path.read_bytes() for path in (*folder.iterdir(), *other.iterdir())}
    launch(folder, f"--workdir={other}", f"--output={output}")
    spent = [Segment(PrivacyPlan(**PRIVACY).settings, 12)]
    values = json.loads((output / "privacy_composition.json").read_text())
    assert values["epsilon"] == pytest.approx(epsilon(spent, 1e-6).epsilon, rel=1e-9)
    assert values["delta"] == 1e-6
    assert [part["steps"] for part in values["parts"]] == [5, 7]
    assert "Privacy of 2 parts together" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in (*folder.iterdir(), *other.iterdir())}
    assert {path: after[path] for path in before} == before
    with pytest.raises(ValueError, match="--delta=0: expected a number above 0 and below 1"):
        privacy_report.print_together([folder, other], 0.0, None)
    launch(folder, f"--workdir={folder}", "--delta=1e-5")  # the same run twice counts once
    assert f"= ({PrivacyPlan(**PRIVACY).epsilon_after(5):.4g}, 1e-05)" in capsys.readouterr().out


def study(folder, *rows):
    """A folder as a study of last layers leaves it: (method, epsilon, seed, fit, tuning)."""
    (folder / "config.json").write_text("{}")
    with open(folder / "results.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["method", "epsilon", "delta", "seed", "spent", "tuning_spent"])
        for method, epsilon_, seed, fit, tuning in rows:
            lines.writerow([method, epsilon_, 1e-5, seed, spent_text(fit), spent_text(tuning)])


def full_batch(noise, steps=1):
    return [Segment(StepSettings(50_000, 50_000, noise, 1.0), steps)]


def together(capsys):
    """Parts and epsilon that the launch printed."""
    said = re.search(
        r"Privacy of (\d+) parts together: .* = \((\S+), 1e-05\)", capsys.readouterr().out
    )
    return int(said[1]), float(said[2])


def test_a_study_of_last_layers_is_added_up_by_its_results(tmp_path, capsys):
    study(
        tmp_path,
        ("least_squares", 1.0, 0, full_batch(3.7306), []),
        ("least_squares", 1.0, 1, full_batch(3.7306), []),
        ("newton", "inf", 0, full_batch(0.0), []),
    )
    with open(tmp_path / "results.csv", "a") as file:
        file.write("newton,8.0")  # cut off
    launch(tmp_path)
    text = capsys.readouterr().out
    two = epsilon(full_batch(3.7306, 2), 1e-5).epsilon
    assert f"Privacy of 2 parts together: (epsilon, delta) = ({two:.4g}, 1e-05)" in text
    assert "1 results without noise, which are not counted" in text
    assert f"note: {tmp_path}: {SEED_NOTE}" in text  # a known seed protects nothing


def test_steps_of_fine_tuning_are_added_to_those_of_other_runs(folder, tmp_path_factory, capsys):
    """Sampled steps compose one by one: an epsilon alone would not do."""
    other = tmp_path_factory.mktemp("study")
    sampled = [Segment(StepSettings(50_000, 1000, 0.9, 1.0), 150)]
    study(other, ("tuned", 8.0, 0, sampled, []), ("newton", 1.0, 0, full_batch(3.7306), []))
    launch(folder, f"--workdir={other}", "--delta=1e-5")
    parts = [Segment(PrivacyPlan(**PRIVACY).settings, 5), *sampled, *full_batch(3.7306)]
    assert together(capsys) == (3, pytest.approx(epsilon(parts, 1e-5).epsilon, rel=1e-3))


def test_tuning_that_all_seeds_share_counts_once(tmp_path, capsys):
    tuning = full_batch(3.7306, 4)
    study(tmp_path, *(("newton", 1.0, seed, full_batch(3.7306), tuning) for seed in (0, 1)))
    launch(tmp_path)
    assert together(capsys) == (
        3,
        pytest.approx(epsilon(full_batch(3.7306, 6), 1e-5).epsilon, rel=1e-3),
    )


def test_what_was_exported_from_a_study_counts_too(tmp_path, capsys):
    study(tmp_path, ("newton", 1.0, 0, full_batch(3.7306), []))
    cell = Cell("newton", Candidate("newton"), 1.0, 1)
    plan = whole_budget(50_000, None, 1e-5, 3.7306, "add_or_remove_one")
    record_export(tmp_path, cell, 1e-5, Chosen({}), plan)
    launch(tmp_path)
    assert together(capsys) == (
        2,
        pytest.approx(epsilon(full_batch(3.7306, 2), 1e-5).epsilon, rel=1e-3),
    )


def test_what_cannot_be_added_up_is_named(folder, tmp_path_factory):
    with pytest.raises(FileNotFoundError, match="no ledger.jsonl .* and no results.csv"):
        launch(folder, f"--workdir={tmp_path_factory.mktemp('empty')}")
    other = tmp_path_factory.mktemp("study")
    (other / "results.csv").write_text("method,epsilon,delta,seed\nnewton,8.0,1e-05,0\n")
    with pytest.raises(ValueError, match="does not say what newton has spent"):
        launch(other)
    study(other, ("newton", 8.0, 0, full_batch(0.9), []))
    path = other / "results.csv"
    path.write_text(path.read_text().replace("full_batch", "by_hand"))
    with pytest.raises(ValueError, match="does not say what newton has spent .*by_hand"):
        launch(other)
    path.write_text("method,accuracy\nnewton,0.9\n")
    with pytest.raises(ValueError, match="no results of a study: no epsilon, delta, seed"):
        launch(other)


def test_sums_of_seeded_training_runs_say_so_too(folder, capsys):
    (folder / "config.json").write_text(json.dumps({"privacy": PRIVACY, "training": {"seed": 0}}))
    launch(folder, f"--workdir={folder}")
    assert SEED_NOTE in capsys.readouterr().out
