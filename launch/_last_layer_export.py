"""The one classifier of a study that leaves the house, with its report inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_collections
from absl import logging

from launch._last_layer_study import Cell, Data, make_backbone, tune_cell
from launch._spent import EXPORTED, OWN_SEED, spent_text
from launch._workdir import Workdir
from tfdp.privacy import PrivacyReport, Segment
from tfdp.transfer import LastLayer
from tfdp.transfer.backbones import Backbone
from tfdp.transfer.study import Chosen, Fitted, fit


def export_one(
    cells: Sequence[Cell], config: ml_collections.ConfigDict, data: Data, workdir: Workdir
) -> None:
    """Fits the method of `config.export` on new noise, and writes SavedModel and report.

    The runs of the table, and those that tuned it, have known seeds, so that anybody can take
    their noise off. This one has not, nor have the runs that tune it, unless `config.export.seed`
    asks for one; its report says so then. It is made once: a workdir that holds a SavedModel
    already is left as it is.
    """
    if not config.export.method:
        return
    cell = export_cell(cells, config)
    if workdir.saved_model.exists():
        logging.info("%s is there already: no privacy is spent.", workdir.saved_model)
        return
    seed = config.export.get("seed")
    chosen, rows, budget = tune_cell(cell, config, data, seed)
    fitted, _ = fit(
        cell.candidate,
        chosen.settings,
        rows,
        budget,
        runs=chosen.share_of_runs,
        seed=data.seed(cell.candidate, seed),
        purpose="export",
    )
    report = PrivacyReport({**fitted.privacy_report().to_dict(), **_tuning(chosen, fitted)})
    write_spent(workdir.path / EXPORTED, cell, config.delta, chosen, fitted, seed)
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    fitted.export(workdir.saved_model, report=report, **_outside(fitted, config, data))
    print(report.summary_text())


def write_spent(
    path: Path, cell: Cell, delta: float, chosen: Chosen, fitted: Fitted, seed: int | None = None
) -> None:
    """Says what the export has cost as a line of the results says it of a run."""
    spent = {
        "method": cell.name,
        "epsilon": str(cell.epsilon),
        "delta": delta,
        "seed": OWN_SEED if seed is None else seed,
        "spent": spent_text([Segment(fitted.plan.settings, fitted.plan.steps)]),
        "tuning_spent": spent_text(chosen.spent),
    }
    whole = path.with_name(path.name + ".new")
    whole.write_text(json.dumps(spent, indent=1) + "\n", encoding="utf-8")
    whole.replace(path)


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


def _tuning(chosen: Chosen, fitted: Fitted) -> dict[str, Any]:
    """What the report says of tuning: uncharged runs looked at private rows too."""
    if not chosen.runs:
        return {}
    tuning = {
        "runs": chosen.runs,
        "charged": chosen.charged,
        "settings": chosen.settings,
        "epsilon_of_all_runs": chosen.epsilon_with(fitted.plan),
    }
    return {"tuning": tuning}


def _outside(fitted: Fitted, config: ml_collections.ConfigDict, data: Data) -> dict[str, Any]:
    """What the SavedModel needs besides the weights: class names, and the features' backbone."""
    if not isinstance(fitted, LastLayer):
        return {"class_names": data.picture_names}
    manifest = data.folder.manifest
    names = manifest["dataset"]["class_names"]
    if manifest["backbone"]["name"] == "unknown":
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
