"""All of a study that can be found wrong before its folder is claimed and rows are summed."""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections

from launch._last_layer_study import Cell, Data, budget_of
from tfdp import checks
from tfdp.transfer import Rows
from tfdp.transfer.precheck import check_candidate


def check_study(cells: Sequence[Cell], config: ml_collections.ConfigDict, data: Data) -> None:
    """Refuses what could not be run to its end.

    Raises:
        TypeError, ValueError: a number of the config, a method, or the rows do not fit, or rows
            cannot be had.
    """
    if not cells:
        raise ValueError("the study has no methods, or no epsilons: there is nothing to run.")
    checks.share("tuning.held_out", config.tuning.held_out)
    checks.boolean("tuning.charge", config.tuning.charge)
    checks.seed(config.tuning.seed)
    if config.tuning.seed is None:
        raise ValueError(
            "tuning.seed must be a whole number: a study that is interrupted repeats its trial "
            "runs, and only under the same noise do they cost what they cost once."
        )
    for cell in cells:
        train, test = data.of(cell.candidate)
        if isinstance(train, Rows) and train.dim != test.dim:
            raise ValueError(
                f"rows of split {config.train_split!r} have {train.dim} columns, and those of "
                f"{config.test_split!r} {test.dim}: make both with the same backbone."
            )
        try:
            check_candidate(
                cell.candidate, budget_of(cell, config, train), train, charge=config.tuning.charge
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"methods.{cell.name}, epsilon {cell.epsilon:g}: {error}") from error
