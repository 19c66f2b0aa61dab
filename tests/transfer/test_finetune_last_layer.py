"""A study from its config to its export: wrong ones claim no folder, finished ones go on."""

import csv
import json
import math
import shutil

import ml_collections
import numpy as np
import pytest

from launch._last_layer import run_study
from launch._spent import Runs
from launch._workdir import Workdir
from tests.transfer.tables import clusters
from tfdp.export import read_report
from tfdp.transfer import LastLayer, as_table
from tfdp.transfer.features import FeatureWriter
from tfdp.transfer.fine_tuning import SampledHead, plan_for
from tfdp.transfer.release_budget import whole_budget
from tfdp.transfer.studies import Budget, Candidate, Chosen, tune
from tfdp.transfer.studies.study_export import with_tuning

CLASSES, DIM, ROWS = 3, 5, 300
NAN, INF = float("nan"), math.inf
TUNED = {"method": "least_squares", "grid": {"ridge": (1e-3, 1e-1)}}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A folder of clusters, in two splits."""
    header = {
        "backbone": {"name": "unknown"},
        "preprocessing": {},
        "dataset": {"name": "clusters", "class_names": list("abc")},
        "dtype": "float32",
    }
    writer = FeatureWriter(tmp_path_factory.mktemp("features"), header)
    for seed, (split, rows) in enumerate({"train": ROWS, "test": 90}.items()):
        writer.begin(split, rows, rows)
        writer.append(split, *clusters(rows, DIM, CLASSES, seed))
    return writer.path


def _config(features, **changes):
    values = {
        "title": "clusters", "features": str(features), "num_examples": ROWS,
        "train_split": "train", "test_split": "test",
        "delta": 1e-4, "adjacency": "add_or_remove_one", "epsilons": (8.0,), "seeds": 1,
        "tuning": {"held_out": 0.2, "charge": False, "seed": 1},
        "backbone": {"name": "", "weights": "", "image_size": 0},
        "pictures": {"dataset": "", "path": ""},
        "export": {"method": "", "epsilon": 8.0, "seed": None},
        "methods": {"one_step": {}, "tuned": TUNED},
    }  # fmt: skip
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        if inner:
            values[outer][inner] = value
        else:
            values[outer] = value
    return ml_collections.ConfigDict(values)


@pytest.fixture
def launch(features, tmp_path):
    """Runs the program in this process on a folder of its own."""

    def run(**changes):
        run_study(_config(features, **changes), str(tmp_path / "run"), "one_device")

    return run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"a": {"method": "newton", "grid": ()}}}, "methods.a.grid must map names"),
        ({"methods": {"a": {"method": "newton", "grid": {"ridge": ()}}}}, "ridge has no values"),
        ({"methods": {"a": {"method": "newton", "grid": {"ridge": 0.1}}}}, "must be a list of"),
        ({"methods": {"a": {"method": "newton", "settings": {"share": 2.0}}}}, "share must lie"),
        ({"methods": {"a": {"method": "auto", "preparation": {"components": 2}}}}, "no public"),
        ({"methods": {"a": {"method": "auto", "settings": "fast"}}}, "methods.a.settings must"),
        ({"methods": {"logistic": {}}}, "logistic, epsilon 8: .* needs epsilon=inf"),
        ({"methods": {"fine_tune": {}}}, "backbone '' is neither"),
        ({"methods": {}}, "nothing to run"),
        ({"epsilons": ()}, "nothing to run"),
        ({"epsilons": (0.0,)}, "one_step: each of epsilons must be a number above 0"),
        ({"epsilons": ("(1.0,inf)",)}, r"infinity \(1e999 on the command line"),
        ({"epsilons": (NAN,)}, "each of epsilons must be"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"seeds": -1}, "seeds must be"),
        ({"delta": 2.0}, "delta must lie strictly between 0 and 1"),
        ({"delta": 0.0}, "delta must lie"),
        ({"num_examples": 0}, "num_examples must be a whole number"),
        ({"num_examples": 500}, "num_examples=500, but there are 300 examples"),
        ({"adjacency": "replace"}, "adjacency"),
        ({"tuning__held_out": 0.0}, "tuning.held_out must lie strictly"),
        ({"tuning__charge": "yes"}, "tuning.charge must be True or False"),
        ({"tuning__seed": "a"}, "seed must be a whole number"),
        ({"tuning__seed": None}, "tuning.seed must be .* repeats its trial runs"),
        ({"export__method": "nope"}, "method 'nope' at epsilon 8, which is not in the study"),
        ({"export__method": "one_step", "export__seed": "a"}, "seed must be a whole number"),
        (
            {
                "methods": {"a": {"method": "sampled_head", "grid": {"epochs": (1.0, 2.0)}}},
                "tuning__charge": True,
            },
            "take batch_size and epochs out",
        ),
        (
            {"methods": {"a": {"method": "sampled_head"}}, "adjacency": "zero_out"},
            "adjacency 'zero_out' has no known analysis",
        ),
    ],
)
def test_mistakes_are_named_before_the_folder_is_claimed(launch, tmp_path, changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        launch(**changes)
    assert not (tmp_path / "run" / "config.json").exists()


def _results(folder):
    with open(folder / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_study_takes_more_seeds_and_then_an_export(launch, tmp_path, capsys):
    folder = tmp_path / "run"
    launch()
    first = _results(folder)
    launch(seeds=2)
    assert _results(folder)[:2] == first and len(_results(folder)) == 4
    assert json.loads((folder / "config.json").read_text())["seeds"] == 2
    capsys.readouterr()
    launch(seeds=2, export__method="tuned")
    assert len(_results(folder)) == 4
    report = read_report(folder / "saved_model")
    page = (folder / "privacy_report.html").read_text()
    said = capsys.readouterr().out
    together = report["tuning"]["epsilon_of_all_runs"]
    for text in (json.dumps(report), page, said):
        assert "the settings were chosen by 2 trial runs on private examples" in text
        assert f"with them it is {together:.4g}" in text
    assert together > 12 > 8 >= report["epsilon"]

    # Another export is not made over the first, and both are added up.
    with pytest.raises(ValueError, match=r"holds tuned at epsilon 8.0, and .* one_step at 8.0"):
        launch(seeds=2, export__method="one_step")
    (folder / "saved_model").rename(folder / "tuned")
    launch(seeds=2, export__method="one_step")
    assert "tuning" not in read_report(folder / "saved_model")
    runs = Runs()
    runs.add(folder)
    names = [name.partition(", epsilon 8.0, ")[2] for name in runs.parts]
    assert names == ["seed 0", "seed 0", "tuning", "seed 1", "seed 1", "export", "tuning of the "
                     "export", "export 2"]  # fmt: skip
    with pytest.raises(ValueError, match="holds a run with other settings .*config.delta"):
        launch(delta=1e-5)


def test_a_study_on_features_that_were_made_anew_needs_another_folder(features, tmp_path):
    """Its table would mix both, or show the old ones as if they were the new."""
    own = shutil.copytree(features, tmp_path / "features")
    config = _config(own, methods={"one_step": {}})
    run_study(config, str(tmp_path / "run"), "one_device")
    table = (tmp_path / "run" / "table.md").read_text()
    writer = FeatureWriter(own, json.loads((own / "manifest.json").read_text()))
    writer.forget("train")
    writer.begin("train", ROWS, ROWS)
    writer.append("train", *clusters(ROWS, DIM, CLASSES, 7))
    with pytest.raises(ValueError, match="holds results on other features"):
        run_study(config, str(tmp_path / "run"), "one_device")
    assert (tmp_path / "run" / "table.md").read_text() == table


def test_two_studies_at_once_in_one_folder_are_rejected(launch, tmp_path):
    """Every run would be in the results twice, and its deviation too small."""
    with Workdir(str(tmp_path / "run")).locked():
        with pytest.raises(ValueError, match=r"run is in use by this process \(pid"):
            launch(methods={"one_step": {}})
        assert not (tmp_path / "run" / "results.csv").exists()
    launch(methods={"one_step": {}})
    assert (tmp_path / "run" / "results.csv").exists()


def test_charged_tuning_is_in_the_report_with_what_all_of_it_spent():
    rows = as_table(*clusters(ROWS, DIM, CLASSES), CLASSES)
    budget = Budget(ROWS, CLASSES, 2.0, 1e-5)
    chosen, _, own = tune(Candidate(**TUNED), rows, budget, charge=True, held_out=0.2)
    head = LastLayer(
        CLASSES, num_examples=own.num_examples, noise_multiplier=budget.noise_multiplier(3)
    )
    report = with_tuning(
        head.fit(rows.subset(np.arange(ROWS) < 240)).privacy_report(), chosen, head.plan
    )
    assert report.epsilon < 1.2 and report["tuning"]["charged"]
    assert report["tuning"]["epsilon_of_all_runs"] == pytest.approx(2.0, rel=1e-3)
    assert "epsilon covers the last run alone, and all of it together has epsilon = 2" in (
        report.summary_text()
    )


def test_a_charged_choice_is_counted_where_it_spends_more_than_the_runs():
    judged = whole_budget(ROWS, 2.0, 1e-5)
    run = plan_for(SampledHead(batch_size=30, epochs=1), ROWS, 0.1, 1e-5)
    assert Chosen({}, (run,), True, judged).epsilon_with(run) == judged.epsilon
    assert Chosen({}, (judged,), True, judged).epsilon_with(judged) > judged.epsilon
