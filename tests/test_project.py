"""What README, requirements and .ci/run promise a newcomer is true."""

import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.build_file import ROOT, normalized, required_packages
from tests.mutate import MUTATIONS

README = (ROOT / "README.md").read_text()
MAIN_JOB = (
    "pip install -r requirements.txt && python -m launch.train_captioner "
    "--config=configs/quickstart.py --workdir=runs/quickstart"
)
TESTS = "pip install -r requirements.txt && pytest -n 2"


def test_readme_gives_both_commands_in_one_line_each():
    lines = README.splitlines()
    assert MAIN_JOB in lines
    assert TESTS in lines


def test_ci_ends_with_the_tests_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text().rstrip().splitlines()
    assert script[-1] == TESTS.split(" && ")[1]
    for check in ("ruff check .", "ruff format --check .", "mypy tfdp launch benchmarks"):
        assert check in script


def test_ci_says_what_is_missing_where_python_is(tmp_path):
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    command = [tmp_path / "bash", str(ROOT / ".ci" / "run")]
    run = subprocess.run(
        command, env={"PATH": str(tmp_path)}, cwd="/", capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("error: no Python 3.11")
    assert run.stdout == ""


@pytest.mark.parametrize("package, version", required_packages().items())
def test_requirements_are_pinned_to_what_is_tested(package, version):
    assert importlib.metadata.version(package) == version


def test_lock_holds_all_requirements_at_the_same_versions():
    assert required_packages().items() <= required_packages("requirements.lock").items()


def test_the_packages_that_the_project_builds_on_are_required():
    for package in ("tensorflow", "tensorflow-privacy", "keras-cv", "keras-nlp", "absl-py"):
        assert normalized(package) in required_packages()
    assert normalized("tensorflow-datasets") in required_packages()


def test_metadata_can_be_read_and_names_the_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["license"]["text"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert project["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]


def test_j5_the_readme_says_what_clip_norm_and_noise_to_start_from_and_never_private_norms():
    section = README.split("### Which numbers to start from")[1].split("\n## ")[0]
    for name in ("delta", "epsilon", "batch_size", "clip_norm", "learning_rate"):
        assert f"- `{name}`" in section
    assert "`1.0`" in section and "*public* records" in section
    assert "per_example_norms" in section


def test_every_path_that_the_readme_names_exists():
    linked = re.findall(r"\]\((?!https?://|#)([^)#]+)", README)
    named = re.findall(r"`((?:tfdp|launch|configs|tests)/[\w./-]*)`", README)
    assert named
    missing = [path for path in {*linked, *named} if not (ROOT / path).exists()]
    assert missing == []


def test_j9_every_pitfall_of_the_readme_names_tests_that_are_there():
    section = README.split("## Pitfalls")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if "](tests/" in line]
    assert len(rows) >= 10
    for row in rows:
        for path, rest in re.findall(r"\]\((tests/\S+?)\)([^\[|]*)", row):
            names = re.findall(r"def (test_\w+)", (ROOT / path).read_text())
            for word in re.findall(r"`(\w+)`", rest):
                assert any(word in name for name in names), (path, word)


def test_every_launch_that_the_readme_names_exists():
    modules = set(re.findall(r"python -m (launch\.\w+)", README))
    assert modules
    assert all(Path(ROOT, f"{name.replace('.', '/')}.py").is_file() for name in modules)


def test_the_readme_example_runs(run_in_subprocess):
    """J6: the Keras examples, as printed, on a small model and for two steps."""
    first, crash_safe = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    first = first.replace("steps=500", "steps=2")
    assert "steps=2" in first
    between = """
        fresh = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
        model = tfdp.make_private(fresh)
        optimizer = tfdp.optimizers.DPSGD(0.1, privacy=plan)
        loss = "sparse_categorical_crossentropy"
    """
    setup = """
        import os, tempfile
        import keras, numpy as np
        os.chdir(tempfile.mkdtemp())
        x = np.random.default_rng(0).normal(size=(50_000, 4)).astype("float32")
        y = (x[:, 0] > 0).astype("int32")
        keras_model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
    """
    setup, between = ("\n".join(map(str.strip, part.splitlines())) for part in (setup, between))
    parts = [setup, first, between, crash_safe, "print('counted', model.ledger.steps)"]
    printed = run_in_subprocess("\n".join(parts), timeout=600)
    assert "epsilon" in printed and "counted 2" in printed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_finds_the_line_that_it_takes_out(mutation):
    assert mutation.old in (ROOT / mutation.file).read_text()
