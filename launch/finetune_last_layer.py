"""Private classifiers of features: methods, budgets and seeds, in one table and one figure.

    python -m launch.finetune_last_layer --config=configs/last_layer/cifar10.py \\
        --config.features=features/cifar10 --workdir=runs/cifar10

The same command again continues where it stopped, or draws table and figure anew; with more seeds
it runs those that are missing. With --config.export.method=NAME, then or later, it fits that
method once more, on noise that nobody can repeat, and writes the classifier with its privacy report
to the workdir's saved_model.
"""

from __future__ import annotations

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from launch._cli import check_config, run_program
from launch._workdir import Workdir
from tfdp.training import STRATEGIES, choose_strategy
from tfdp.transfer.studies import (
    Export,
    ResultsFile,
    Study,
    fit_export,
    planned_export,
    record_export,
    write_summaries,
)

_CONFIG = config_flags.DEFINE_config_file("config", None, "The study: configs/FILE.py[:argument].")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of everything that the study writes.")
_STRATEGY = flags.DEFINE_enum("strategy", "auto", STRATEGIES, "How work is spread over devices.")


def main(_: list[str]) -> None:
    check_config(_CONFIG.value, "methods", "epsilons", "seeds", "tuning", "export")
    run_study(_CONFIG.value, _WORKDIR.value, _STRATEGY.value)


def run_study(config: ml_collections.ConfigDict, folder: str | None, strategy: str) -> None:
    """Checks the study, runs what is not there yet, and prints the table.

    Args:
        config: The study.
        folder: Of everything that it writes.
        strategy: One of `tfdp.training.STRATEGIES`.

    Raises:
        TypeError, ValueError: Something in the config is wrong; nothing was written.
    """
    values = config.to_dict()
    study = Study.from_config(values)
    study.check()
    workdir = Workdir(folder)
    with workdir.locked():
        export = planned_export(study, values["export"], workdir.path, workdir.saved_model)
        if values["export"]["method"] and not export:
            logging.info("%s is there already: nothing is spent on it.", workdir.saved_model)
        workdir.claim(config, may_change=("export", "seeds", "title"))
        if any(cell.candidate.method != "fine_tune" for cell in study.cells):
            workdir.claim_features(study.data.checksum)
        results = ResultsFile(workdir.results)
        with choose_strategy(strategy).scope():
            study.run(results)
            if export:
                _export(study, export, workdir)
        print(write_summaries(results.results, workdir.path, config.title))
    print(f"Everything is in {workdir.path}")


def _export(study: Study, export: Export, workdir: Workdir) -> None:
    """Fits the classifier to export, records what it spent, and writes it with its report."""
    fitted, report, chosen = fit_export(study, export)
    record_export(workdir.path, export.cell, study.delta, chosen, fitted.plan, export.seed)
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    fitted.export(workdir.saved_model, report=report, **export.parts)
    print(report.summary_text())


if __name__ == "__main__":
    run_program(main)
