"""Private classifiers of features: methods, budgets and seeds, in one table and one figure.

    python -m launch.finetune_last_layer --config=configs/last_layer/cifar10.py \\
        --config.features=features/cifar10 --workdir=runs/cifar10

The same command again continues where it stopped, or draws table and figure anew; with more seeds
it runs those that are missing. With --config.export.method=NAME, then or later, it fits that
method once more, on noise that nobody can repeat, and writes the classifier with its privacy report
to the workdir's saved_model.
"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from launch._cli import check_config, run_program
from launch._last_layer import run_study
from tfdp.training import STRATEGIES

_CONFIG = config_flags.DEFINE_config_file("config", None, "The study: configs/FILE.py[:argument].")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of everything that the study writes.")
_STRATEGY = flags.DEFINE_enum("strategy", "auto", STRATEGIES, "How work is spread over devices.")


def main(_: list[str]) -> None:
    check_config(_CONFIG.value, "methods", "epsilons", "seeds", "tuning", "export")
    run_study(_CONFIG.value, _WORKDIR.value, _STRATEGY.value)


if __name__ == "__main__":
    run_program(main)
