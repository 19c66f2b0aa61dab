"""A study of last layers from its config to its table, figure and export."""

from __future__ import annotations

import ml_collections

from launch._last_layer_checks import check_study
from launch._last_layer_export import export_one, planned_export
from launch._last_layer_results import ResultsFile, write_summaries
from launch._last_layer_study import Data, run_study, study_cells
from launch._workdir import Workdir
from tfdp.training import choose_strategy


def run_whole_study(config: ml_collections.ConfigDict, folder: str | None, strategy: str) -> None:
    """Checks the study, runs what is not there yet, and prints the table.

    Args:
        config: the study.
        folder: of everything that it writes.
        strategy: one of `tfdp.training.STRATEGIES`.

    Raises:
        TypeError, ValueError: something in the config is wrong; nothing was written.
    """
    cells = study_cells(config)
    data = Data(config)
    check_study(cells, config, data)
    workdir = Workdir(folder)
    with workdir.locked():
        export = planned_export(cells, config, data, workdir)
        workdir.claim(config, may_change=("export", "seeds", "title"))
        if any(cell.candidate.method != "fine_tune" for cell in cells):
            workdir.claim_features(data.checksum)
        results = ResultsFile(workdir.results)
        with choose_strategy(strategy).scope():
            run_study(cells, config, data, results)
            if export:
                export_one(export, config, data, workdir)
        print(write_summaries(results.results, workdir.path, config.title))
    print(f"Everything is in {workdir.path}")
