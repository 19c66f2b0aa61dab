"""The one classifier of a study that leaves the house, with its report inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_collections
from absl import logging

from launch._last_layer_study import Cell, Data, fit_chosen, make_backbone, tune_cell
from launch._spent import EXPORTED, OWN_SEED, exports, spent_text
from launch._workdir import Workdir
from tfdp import checks
from tfdp.files import write_whole
from tfdp.privacy import PrivacyReport, Segment
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.sampled import SAMPLED
from tfdp.transfer.study import Chosen, Fitted


class Export(NamedTuple):
    """What is to be exported.

    Attributes:
        cell: the method, at its epsilon.
        outside: what the SavedModel needs besides the weights, for `Fitted.export`.
    """

    cell: Cell
    outside: dict[str, Any]


def planned_export(
    cells: Sequence[Cell], config: ml_collections.ConfigDict, data: Data, workdir: Workdir
) -> Export | None:
    """The export that `config.export` asks for, with all that it takes but the weights.

    It is made once: a workdir that holds its SavedModel already is left as it is.

    Returns:
        None if there is nothing to do.

    Raises:
        ValueError: it is not in the study, the workdir holds the export of something else, or
            the backbone is not the one that made the features.
    """
    if not config.export.method:
        return None
    checks.seed(config.export.get("seed"))
    cell = export_cell(cells, config)
    if workdir.saved_model.exists():
        _same_export(workdir, cell)
        logging.info("%s is there already: no privacy is spent.", workdir.saved_model)
        return None
    return Export(cell, _outside(cell, config, data))


def export_one(
    export: Export, config: ml_collections.ConfigDict, data: Data, workdir: Workdir
) -> None:
    """Fits the method of `config.export` on new noise, and writes SavedModel and report.

    The runs of the table, and those that tuned it, have known seeds, so that anybody can take
    their noise off. This one has not, nor have the runs that tune it, unless `config.export.seed`
    asks for one; its report says so then.
    """
    cell, seed = export.cell, config.export.get("seed")
    chosen, rows, budget = tune_cell(cell, config, data, seed)
    fitted, _ = fit_chosen(cell, seed, data, chosen, rows, budget, purpose="export")
    report = with_tuning(fitted.privacy_report(), chosen, fitted)
    write_spent(workdir.path / EXPORTED, cell, config.delta, chosen, fitted, seed)
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    fitted.export(workdir.saved_model, report=report, **export.outside)
    print(report.summary_text())


def _same_export(workdir: Workdir, cell: Cell) -> None:
    """Refuses another method than the one whose SavedModel is there."""
    made = exports(workdir.path)
    wanted = cell.name, str(cell.epsilon)
    if made and (made[-1]["method"], made[-1]["epsilon"]) != wanted:
        raise ValueError(
            f"{workdir.saved_model} holds {made[-1]['method']} at epsilon {made[-1]['epsilon']}, "
            f"and config.export asks for {wanted[0]} at {wanted[1]}: move it elsewhere to export "
            "that too. What both cost is added up."
        )


def write_spent(
    path: Path, cell: Cell, delta: float, chosen: Chosen, fitted: Fitted, seed: int | None = None
) -> None:
    """Adds what an export has cost, as a line of the results says it of a run, to the others."""
    spent = {
        "method": cell.name,
        "epsilon": str(cell.epsilon),
        "delta": delta,
        "seed": OWN_SEED if seed is None else seed,
        "spent": spent_text([Segment(fitted.plan.settings, fitted.plan.steps)]),
        "tuning_spent": spent_text(chosen.spent),
    }
    made = [*exports(path.parent), spent]
    write_whole(path, json.dumps(made, indent=1) + "\n")


def export_cell(cells: Sequence[Cell], config: ml_collections.ConfigDict) -> Cell:
    """The cell that `config.export` names.

    Raises:
        ValueError: there is none.
    """
    wanted = config.export.method, float(config.export.epsilon)
    for cell in cells:
        if (cell.name, cell.epsilon) == wanted:
            return cell
    raise ValueError(
        f"config.export names method {wanted[0]!r} at epsilon {wanted[1]:g}, which is not in the "
        f"study; its methods are {', '.join(dict.fromkeys(cell.name for cell in cells))}."
    )


def with_tuning(report: PrivacyReport, chosen: Chosen, fitted: Fitted) -> PrivacyReport:
    """The report with what tuning cost: its runs looked at private records too."""
    if not chosen.runs:
        return report
    together = chosen.epsilon_with(fitted.plan)
    note = f"the settings were chosen by {chosen.runs} trial runs on private records"
    if chosen.charged:
        note += (
            " and a noisy choice among them; epsilon is what the last run alone cost, and all of "
            f"it together cost epsilon = {together:.4g}"
        )
    else:
        note += (
            f", which epsilon does not count: with them it is {together:.4g}, and the choice among "
            "them, which looked at held-out records without noise, is covered by no epsilon"
        )
    tuning = {
        "runs": chosen.runs,
        "charged": chosen.charged,
        "settings": chosen.settings,
        "epsilon_of_all_runs": together,
    }
    return PrivacyReport({**report.values, "notes": [note, *report["notes"]], "tuning": tuning})


def _outside(cell: Cell, config: ml_collections.ConfigDict, data: Data) -> dict[str, Any]:
    """What the SavedModel needs besides the weights: class names, and the features' backbone."""
    if cell.candidate.method == "fine_tune":
        return {"class_names": data.picture_names}
    manifest = data.folder.manifest
    names = manifest["dataset"]["class_names"]
    # A head that was trained on sampled batches takes features, whatever made them.
    if manifest["backbone"]["name"] == "unknown" or cell.candidate.method in SAMPLED:
        return {"class_names": names}
    return {"class_names": names, "backbone": _same_backbone(config, manifest)}


def _same_backbone(config: ml_collections.ConfigDict, manifest: dict[str, Any]) -> Backbone:
    entry = manifest["backbone"]
    backbone = make_backbone(config, entry["name"], manifest["preprocessing"]["image_size"])
    if {"name": backbone.name, **backbone.description} != entry:
        raise ValueError(
            f"the features were made by {entry}, and config.backbone is "
            f"{backbone.name}, {backbone.description}: export needs the same weights."
        )
    return backbone
