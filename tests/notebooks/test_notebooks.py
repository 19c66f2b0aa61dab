"""Notebooks run from top to bottom and show what their text says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def run(notebook: Path) -> dict:
    """Runs the code cells in order, and returns the names that they leave."""
    names: dict = {}
    for number, cell in enumerate(json.loads(notebook.read_text("utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    return names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_not_stored(notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def test_a_notebook_runs_in_its_own_folder_without_an_installed_tfdp():
    """F24: Jupyter starts a kernel in the notebook's folder, which is not the repository's root."""
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(
            [sys.executable, "-c", first], cwd=notebook.parent, env=environment, check=True
        )


def test_the_private_classifier_learns_within_its_budget(monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(NOTEBOOKS[0].parent)
    names = run(next(path for path in NOTEBOOKS if path.name == "private_classifier.ipynb"))
    assert names["accuracy"] > 0.3, "nine categories, 0.35 to 0.38 over seeds"
    assert names["history"].history["epsilon"][-1] == pytest.approx(8.0, rel=1e-3)
    assert names["model"].privacy_report()["steps"] == 60
