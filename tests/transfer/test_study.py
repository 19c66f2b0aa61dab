"""The two programs, from pictures to a table, with what goes wrong said in one line."""

import csv
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from launch._last_layer import class_names
from launch._spent import Runs
from tfdp.export import read_report
from tfdp.privacy import epsilon
from tfdp.transfer.features import FeatureWriter
from tfdp.transfer.studies import Candidate, Chosen, ResultsFile, Study, fit_export
from tfdp.transfer.studies.study import study_cells
from tfdp.transfer.studies.study_data import StudyData
from tfdp.transfer.studies.study_export import Export, export_cell
from tfdp.transfer.studies.study_results import Result

CONFIG = """
import ml_collections

def get_config():
    return ml_collections.ConfigDict({
        "title": "toys", "features": "", "num_examples": 300,
        "train_split": "train", "test_split": "test",
        "delta": 1e-4, "adjacency": "add_or_remove_one",
        "epsilons": (1.0, 8.0), "seeds": 2,
        "tuning": {"held_out": 0.1, "charge": False, "seed": 1},
        "backbone": {"name": "", "weights": "", "image_size": 0},
        "pictures": {"dataset": "npz", "path": ""},
        "export": {"method": "tuned", "epsilon": 8.0},
        "methods": {
            "one_step": {},
            "tuned": {
                "method": "least_squares", "grid": {"ridge": [1e-3, 1e-1]}, "epsilons": (8.0,)
            },
            "biases": {
                "method": "fine_tune", "epsilons": (8.0,),
                "settings": {"part": "bias", "batch_size": 100, "epochs": 3.0},
            },
            "logistic": {"epsilons": (float("inf"),)},
        },
    })
"""


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """Pictures of three colors, and a backbone that mixes and pools them."""
    folder = tmp_path_factory.mktemp("toys")
    generator = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 300), ("test", 90)):
        labels = generator.integers(0, 3, count)
        noise = generator.integers(0, 60, (count, 4, 4, 3))
        arrays[f"x_{split}"] = (noise + 150 * np.eye(3)[labels][:, None, None]).astype(np.uint8)
        arrays[f"y_{split}"] = labels
    np.savez(folder / "toys.npz", **arrays)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Conv2D(6, 1)])
    model.add(keras.layers.GlobalAveragePooling2D())
    model.save(folder / "pool.keras")
    (folder / "config.py").write_text(CONFIG)
    return folder


def test_from_pictures_to_a_table(toys, run_in_subprocess):
    said = run_in_subprocess(
        "launch.extract_features",
        f"--backbone={toys}/pool.keras",
        "--dataset=npz",
        f"--data_path={toys}/toys.npz",
        f"--output={toys}/features",
        "--dtype=float32",
    )
    assert "train: 300 examples" in said and "test: 90 examples" in said
    arguments = (
        "launch.finetune_last_layer",
        f"--config={toys}/config.py",
        f"--config.features={toys}/features",
        f"--config.backbone.name={toys}/pool.keras",
        f"--config.pictures.path={toys}/toys.npz",
        f"--workdir={toys}/run",
    )
    said = run_in_subprocess(*arguments)
    assert "| method | ε = 1 | ε = 8 | no privacy |" in said
    with open(toys / "run" / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 + 2 + 2 + 1
    assert {row["sigma"] for row in rows if row["epsilon"] == "inf"} == {"0.0"}
    tuned = [row for row in rows if row["method"] == "tuned"]
    assert tuned[0]["tuning_runs"] == "2" and float(tuned[0]["epsilon_with_tuning"]) > 12
    assert json.loads(tuned[0]["settings"])["ridge"]
    results = json.loads((toys / "run" / "results.json").read_text())
    assert len(results) == len(rows) and {r["epsilon"] for r in results} == {1.0, 8.0, "inf"}
    assert {"method", "epsilon", "delta", "sigma", "seed", "accuracy", "seconds"} <= set(results[0])
    strict = [r for r in results if r["epsilon"] != 1.0 and r["method"] != "biases"]
    assert all(result["accuracy"] > 0.8 for result in strict)
    assert (toys / "run" / "figures" / "accuracy.png").stat().st_size > 5000

    # One classifier leaves the house, on noise of its own, with what it cost inside.
    report = read_report(toys / "run" / "saved_model")
    assert 7.9 < report["epsilon"] <= 8.0 and not any("seed" in note for note in report["notes"])
    assert report["tuning"]["runs"] == 2 and report["tuning"]["epsilon_of_all_runs"] > 12
    assert "counts" not in report
    assert json.loads((toys / "run" / "privacy_report.json").read_text())["counts"]
    exported = (toys / "run" / "saved_model" / "saved_model.pb").stat().st_mtime_ns

    # A run that was cut off in mid-line goes on, and repeats nothing that it has.
    text = (toys / "run" / "results.csv").read_text()
    (toys / "run" / "results.csv").write_text("\n".join(text.splitlines()[:-2]) + "\ntuned,8.")
    run_in_subprocess(*arguments)
    again = (toys / "run" / "results.csv").read_text()
    assert again.splitlines()[:-2] == text.splitlines()[:-2]
    assert len(again.splitlines()) == len(text.splitlines())
    assert (toys / "run" / "saved_model" / "saved_model.pb").stat().st_mtime_ns == exported

    # All of it can be added up: nine fits but for the one without noise, and their tuning; the
    # export, and the tuning of its own that it had, on noise that nobody can repeat.
    runs = Runs()
    runs.add(toys / "run")
    assert len(runs.parts) == 8 + 1 + 2 and len(runs.notes) == 2
    assert "whoever knows the seed can remove the noise" in runs.notes[0]
    exported = f"{toys / 'run'}: tuned, epsilon 8.0"
    assert runs.parts[f"{exported}, tuning of the export"] == runs.parts[f"{exported}, tuning"]
    biases = runs.parts[f"{toys / 'run'}: biases, epsilon 8.0, seed 0"]
    assert [(part.settings.sampling, part.steps) for part in biases] == [("poisson", 9)]
    assert 7.9 < epsilon(biases, 1e-4).epsilon <= 8.0


def test_a_mistake_ends_in_one_line(toys, run_in_subprocess):
    code = """
    import subprocess, sys
    done = subprocess.run([sys.executable, "-m", *sys.argv[1:]], capture_output=True, text=True)
    print(done.returncode, [l for l in done.stderr.splitlines() if l.startswith("error")])
    """
    said = run_in_subprocess(
        code,
        "launch.finetune_last_layer",
        f"--config={toys}/config.py",
        f"--config.backbone.name={toys}/pool.keras",
        f"--config.pictures.path={toys}/toys.npz",
        f"--workdir={toys}/x",
        "--config.features=/nowhere",
    )
    assert said.startswith("1 ['error: /nowhere: not a feature folder"), said


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"metod": "auto"}, "methods.a has no key metod"),
        ({"method": "nosuch"}, "method must be one of auto"),
        ({"method": "auto", "settings": {"steps": 3}}, "has no setting 'steps'"),
        ({"method": "full_batch", "grid": {"loop": {"stps": [3]}}}, "has no setting 'stps'"),
    ],
)
def test_a_misspelled_config_is_noticed_before_anything_runs(entry, message):
    config = {"epsilons": (1.0,), "seeds": 1, "methods": {"a": entry}}
    with pytest.raises(ValueError, match=message):
        study_cells(config, StudyData())


def test_an_export_that_is_not_in_the_study_is_named():
    config = {"epsilons": (1.0,), "seeds": 1, "methods": {"auto": {}, "newton": {}}}
    cells = study_cells(config, StudyData())
    with pytest.raises(ValueError, match="'auto' at epsilon 2, .* its methods are auto, newton"):
        export_cell(cells, {"method": "auto", "epsilon": 2.0})


@pytest.mark.parametrize("seed", [None, 5])
def test_what_is_exported_is_tuned_and_fitted_without_the_study_s_seeds(monkeypatch, seed):
    seen = []

    def tuned(*_, **settings):
        seen.append(settings["seed"])
        return Chosen({}), None, None

    def fitted(*_, **settings):
        seen.append(settings["seed"])
        raise InterruptedError

    monkeypatch.setattr("tfdp.transfer.studies.study.tune", tuned)
    monkeypatch.setattr("tfdp.transfer.studies.study.fit", fitted)
    examples = SimpleNamespace(num_classes=2)
    data = SimpleNamespace(
        seed=lambda candidate, seed: seed, of=lambda candidate: (examples, examples)
    )
    config = {"epsilons": (1.0,), "seeds": 1, "methods": {"auto": {}}}
    cells = study_cells(config, data)
    study = Study(cells, data, 100, 1e-5, "add_or_remove_one", 0.1, False, tuning_seed=1000)
    with pytest.raises(InterruptedError):
        fit_export(study, Export(cells[0], seed, {}))
    assert seen == [seed, seed]


def test_studies_of_other_features_have_other_noise_under_the_same_seed(tmp_path):
    seeds = []
    for name, dtype in (
        ("one", "float16"),
        ("other", "float16"),
        ("one", "float32"),
        ("one", "float16"),
    ):
        manifest = {"format": 1, "backbone": {"name": name}, "splits": {}, "dtype": dtype}
        manifest["dataset"] = {"name": "cifar10", "class_names": ["a", "b"]}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        seeds.append(StudyData(str(tmp_path)).seed(Candidate("auto"), 0))
    assert seeds[0] == seeds[3] and len(set(seeds)) == 3
    assert StudyData(str(tmp_path)).seed(Candidate("auto"), None) is None


def test_so_have_studies_of_other_rows_under_the_same_names(tmp_path):
    header = {"backbone": {"name": "unknown"}, "preprocessing": {}, "dtype": "float32"}
    header["dataset"] = {"name": "tfrecord", "class_names": ["0", "1"]}
    seeds = []
    for folder, width in (("a", 4), ("b", 6), ("c", 4)):
        writer = FeatureWriter(tmp_path / folder, header)
        for split in ("train", "test"):
            writer.begin(split, 2, 10)
            writer.append(split, np.ones((2, width), np.float32), np.arange(2))
        seeds.append(StudyData(str(tmp_path / folder)).seed(Candidate("auto"), 0))
    assert seeds[0] == seeds[2] != seeds[1]


def test_so_have_studies_that_fine_tune_other_weights():
    seeds = []
    for weights in ("", "a.pth", "b.pth", "a.pth"):
        data = StudyData(
            dataset="cifar10", path="a.tgz", backbone="efficientnet_lite0", weights=weights
        )
        seeds.append(data.seed(Candidate("fine_tune"), 0))
    assert seeds[1] == seeds[3] and len(set(seeds)) == 3


def test_an_epsilon_listed_twice_is_rejected_and_not_run_twice():
    config = {"epsilons": (1.0, 8, 1), "seeds": 1, "methods": {"auto": {}}}
    with pytest.raises(ValueError, match=r"methods\.auto: epsilons must differ"):
        study_cells(config, StudyData())


@pytest.mark.parametrize(
    ("value", "content", "message"),
    [
        ("1", None, "=1: a classifier needs two classes or more, got 1"),
        ("names.json", '["a"]', "two classes or more, got 1"),
        ("names.json", '{"a": 1}', "expected a JSON list"),
        ("names.json", "a, b", "holds no JSON"),
    ],
)
def test_class_names_that_are_none_are_rejected(tmp_path, monkeypatch, value, content, message):
    monkeypatch.chdir(tmp_path)
    if content:
        (tmp_path / value).write_text(content)
    with pytest.raises(ValueError, match=message):
        class_names(value)
    assert class_names("2") == ["0", "1"]


def test_results_of_another_version_are_kept_and_named(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("method,accuracy\nauto,0.9\n")
    with pytest.raises(ValueError, match="has the columns method, accuracy: another version"):
        ResultsFile(path)
    assert path.read_text() == "method,accuracy\nauto,0.9\n"
    path.write_text("")
    assert ResultsFile(path).results == []


def test_a_study_cut_off_within_what_a_run_spent_continues(tmp_path):
    """The last field is half a JSON then, and neither the study nor the sum of costs stops."""
    path = tmp_path / "results.csv"
    spent = '[{"settings": {"num_examples": 300, "batch_size": 300, "noise_multiplier": 1.0, '
    spent += '"clip_norm": 1.0, "sampling": "full_batch"}, "steps": 1}]'
    for seed in range(2):
        ResultsFile(path).add(Result("auto", 1.0, 1e-5, 1.0, seed, 0.9, 0.1, spent=spent))
    text = path.read_text().rstrip()
    for cut in (1, 4, 20):
        path.write_text(text[:-cut])
        runs = Runs()
        runs.add(tmp_path)
        assert len(runs.parts) == 1
        assert [result.seed for result in ResultsFile(path).results] == [0]
    # In another line it is damage, which hides a cost.
    path.write_text(text.replace("300", "300 3", 1))
    with pytest.raises(ValueError, match="does not say what auto has spent"):
        Runs().add(tmp_path)
    lines = text.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2]]))
    for reading in (lambda: Runs().add(tmp_path), lambda: ResultsFile(path)):
        with pytest.raises(ValueError, match="a line before its last one, of auto, was cut off"):
            reading()
