"""What README, requirements and .ci/run promise a newcomer is true."""

import importlib.metadata
import itertools
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.build_file import ROOT, normalized, required_packages
from tests.mutate import MUTATIONS

README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
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


def declared_ranges() -> dict[str, str]:
    """The packages of pyproject.toml, those of the extras included: name -> range."""
    project = PYPROJECT["project"]
    extras = itertools.chain(*project["optional-dependencies"].values())
    lines = [*project["dependencies"], *extras]
    names = [re.match(r"[\w-]+", line)[0] for line in lines]
    return {normalized(n): line[len(n) :] for n, line in zip(names, lines, strict=True)}


def test_pyproject_has_the_packages_of_the_requirements_in_ranges_that_hold_their_versions():
    ranges = declared_ranges()
    assert ranges.keys() == required_packages().keys()
    for package, version in required_packages().items():
        for bound in ranges[package].split(","):
            sign, limit = re.fullmatch(r"(>=|<)([\d.]+)", bound).groups()
            limit, tested = ([int(n) for n in v.split(".")] for v in (limit, version))
            assert tested >= limit if sign == ">=" else tested < limit, (package, bound)


def test_the_core_works_without_the_extras_and_says_what_other_rooms_need(run_in_subprocess):
    printed = run_in_subprocess(
        """
        import sys
        extras = "array_record keras_cv keras_hub keras_nlp matplotlib resvg_py tensorboard"
        extras += " tensorflow_datasets ml_collections importlib_resources"
        for name in extras.split():
            sys.modules[name] = None
        import tfdp
        print(tfdp.transfer.LastLayer, tfdp.export.read_report, tfdp.audit.Audit)
        for room in ("captioner", "evaluation"):
            try:
                getattr(tfdp, room)
            except ModuleNotFoundError as error:
                print(error)
        """
    )
    assert "tfdp.captioner needs keras_nlp, which is not installed" in printed
    assert printed.count("pip install '.[captioner,data]'") >= 1


def test_data_files_of_the_package_are_installed():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["*"]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "tfdp"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a clone")
    files = [Path(line) for line in listed.stdout.splitlines() if not line.endswith(".py")]
    assert files
    for file in files:
        assert any(file.match(pattern) for pattern in patterns), file


def test_lock_holds_all_requirements_at_the_same_versions():
    assert required_packages().items() <= required_packages("requirements.lock").items()


def test_the_packages_that_the_project_builds_on_are_required():
    for package in ("tensorflow", "tensorflow-privacy", "keras-cv", "keras-nlp", "absl-py"):
        assert normalized(package) in required_packages()
    assert normalized("tensorflow-datasets") in required_packages()


def test_metadata_can_be_read_and_names_the_license():
    project = PYPROJECT
    assert project["project"]["license"]["text"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert project["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_finds_the_line_that_it_takes_out(mutation):
    assert mutation.old in (ROOT / mutation.file).read_text()
