"""What the two programs of last layers do, apart from their flags."""

from __future__ import annotations

import json
from typing import Any

import ml_collections
from absl import logging

from launch._workdir import Workdir
from tfdp.training import choose_strategy
from tfdp.transfer.studies import (
    Export,
    ResultsFile,
    Study,
    fit_export,
    planned_export,
    record_export,
    write_summaries,
)


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
            logging.info("%s exists already, so nothing is spent on it.", workdir.saved_model)
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


def class_names(value: str) -> list[str]:
    """Returns names from a number of classes, or from a JSON file that lists them.

    Raises:
        OSError, ValueError: There is no such file, or it holds no list of two names or more.
    """
    names = list(range(int(value))) if value.isdecimal() else _listed_names(value)
    if len(names) < 2:
        raise ValueError(
            f"--class_names={value}: a classifier needs two classes or more, got {len(names)}."
        )
    return [str(name) for name in names]


def _listed_names(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            names = json.load(file)
    except ValueError as error:
        raise ValueError(f"--class_names={path}: holds no JSON ({error}).") from error
    if not isinstance(names, list):
        raise ValueError(f"--class_names={path}: expected a JSON list of names.")
    return names
