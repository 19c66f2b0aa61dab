"""Private classifiers of features: methods, budgets and seeds, in one table and one figure.

    python -m launch.finetune_last_layer --config=configs/last_layer/cifar10.py \\
        --config.features=features/cifar10 --workdir=runs/cifar10

The same command again goes on where it stopped, or draws table and figure anew. With
--config.export.method=NAME it fits that method once more, on noise that nobody can repeat, and
writes the classifier with its privacy report to the workdir's saved_model.
"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from launch._cli import run_program
from launch._last_layer_export import export_one
from launch._last_layer_results import ResultsFile, write_summaries
from launch._last_layer_study import Data, run_study, study_cells
from launch._workdir import Workdir
from tfdp.training import STRATEGIES, choose_strategy

_CONFIG = config_flags.DEFINE_config_file("config", None, "The study: configs/FILE.py[:argument].")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of everything that the study writes.")
_STRATEGY = flags.DEFINE_enum("strategy", "auto", STRATEGIES, "How work is spread over devices.")


def main(_: list[str]) -> None:
    config = _CONFIG.value
    cells = study_cells(config)
    data = Data(config)
    for cell in cells:
        data.of(cell.candidate)  # what is missing is missed before anything is written
    workdir = Workdir(_WORKDIR.value)
    workdir.claim(config)
    results = ResultsFile(workdir.path / "results.csv")
    with choose_strategy(_STRATEGY.value).scope():
        run_study(cells, config, data, results)
        export_one(cells, config, data, workdir)
    print(write_summaries(results.results, workdir.path, config.title))
    print(f"Everything is in {workdir.path}")


if __name__ == "__main__":
    run_program(main)
