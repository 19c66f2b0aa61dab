"""The one classifier of a study that is exported, with what its tuning spent in its report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfdp import checks
from tfdp.files import write_whole
from tfdp.privacy import PrivacyPlan, PrivacyReport, Segment
from tfdp.transfer.backbones import Backbone, load_backbone
from tfdp.transfer.fine_tuning import SAMPLED
from tfdp.transfer.studies.study import Cell, Study
from tfdp.transfer.studies.study_data import StudyData
from tfdp.transfer.studies.study_results import EXPORTED, OWN_SEED, exports, spent_text
from tfdp.transfer.studies.tuning import Chosen, Fitted


class Export(NamedTuple):
    """What is to be exported.

    Attributes:
        cell: The method, at its epsilon.
        seed: Of its noise, for tests; None draws noise that nobody can repeat.
        parts: What the SavedModel needs besides the weights: arguments of `Fitted.export`.
    """

    cell: Cell
    seed: int | None
    parts: dict[str, Any]


class Exported(NamedTuple):
    """A classifier that can be exported, with its report and with what tuning came to."""

    fitted: Fitted
    report: PrivacyReport
    chosen: Chosen


def planned_export(
    study: Study, wanted: Mapping[str, Any], folder: Path, saved_model: Path
) -> Export | None:
    """Returns the export that a config asks for, with everything that it takes but the weights.

    Args:
        study: Has the method.
        wanted: `method`, `epsilon` and, for tests, `seed`; no method means no export.
        folder: Of the study.
        saved_model: Where the export goes. One that is there already is left as it is.

    Returns:
        None if there is nothing to do.

    Raises:
        ValueError: The method is not in the study, the folder holds the export of something else,
            or the backbone is not the one that made the features.
    """
    if not wanted["method"]:
        return None
    seed = checks.seed(wanted.get("seed"))
    cell = export_cell(study.cells, wanted)
    if saved_model.exists():
        _check_same(cell, folder, saved_model)
        return None
    return Export(cell, seed, _parts(cell, study.data))


def fit_export(study: Study, export: Export) -> Exported:
    """Fits the method on new noise.

    The runs of the table, and those that tuned it, have known seeds, so that anybody can remove
    their noise. This one has no seed, nor have the runs that tune it, unless the config asks for
    one; the report then says so.
    """
    tuned = study.tune(export.cell, export.seed)
    fitted, _ = study.fit(export.cell, export.seed, tuned, purpose="export")
    report = with_tuning(fitted.privacy_report(), tuned.chosen, fitted.plan)
    return Exported(fitted, report, tuned.chosen)


def record_export(
    folder: Path,
    cell: Cell,
    delta: float,
    chosen: Chosen,
    plan: PrivacyPlan,
    seed: int | None = None,
) -> None:
    """Adds what an export spent to the list in the study's folder."""
    spent = {
        "method": cell.name,
        "epsilon": str(cell.epsilon),
        "delta": delta,
        "seed": OWN_SEED if seed is None else seed,
        "spent": spent_text([Segment(plan.settings, plan.steps)]),
        "tuning_spent": spent_text(chosen.spent),
    }
    write_whole(folder / EXPORTED, json.dumps([*exports(folder), spent], indent=1) + "\n")


def export_cell(cells: Sequence[Cell], wanted: Mapping[str, Any]) -> Cell:
    """Returns the cell that a config wants to export.

    Raises:
        ValueError: There is none.
    """
    name, epsilon = wanted["method"], float(wanted["epsilon"])
    for cell in cells:
        if (cell.name, cell.epsilon) == (name, epsilon):
            return cell
    raise ValueError(
        f"config.export names method {name!r} at epsilon {epsilon:g}, which is not in the "
        f"study; its methods are {', '.join(dict.fromkeys(cell.name for cell in cells))}."
    )


def with_tuning(report: PrivacyReport, chosen: Chosen, final: PrivacyPlan) -> PrivacyReport:
    """Returns the report with what tuning spent: its runs used private examples too."""
    if not chosen.runs:
        return report
    together = chosen.epsilon_with(final)
    note = f"the settings were chosen by {chosen.runs} trial runs on private examples"
    if chosen.charged:
        note += (
            " and a noisy choice among them; epsilon covers the last run alone, and all of "
            f"it together has epsilon = {together:.4g}"
        )
    else:
        note += (
            f", which epsilon does not count: with them it is {together:.4g}, and the choice among "
            "them, which used held-out examples without noise, is covered by no epsilon"
        )
    tuning = {
        "runs": chosen.runs,
        "charged": chosen.charged,
        "settings": chosen.settings,
        "epsilon_of_all_runs": together,
    }
    return PrivacyReport({**report.values, "notes": [note, *report["notes"]], "tuning": tuning})


def _check_same(cell: Cell, folder: Path, saved_model: Path) -> None:
    """Rejects another method than the one whose SavedModel is there."""
    made = exports(folder)
    wanted = cell.name, str(cell.epsilon)
    if made and (made[-1]["method"], made[-1]["epsilon"]) != wanted:
        raise ValueError(
            f"{saved_model} holds {made[-1]['method']} at epsilon {made[-1]['epsilon']}, "
            f"and config.export asks for {wanted[0]} at {wanted[1]}: to export that too, move the "
            "first one elsewhere. What both spend is added up."
        )


def _parts(cell: Cell, data: StudyData) -> dict[str, Any]:
    """Returns the class names, and the features' backbone where it is known."""
    parts: dict[str, Any] = {"class_names": data.class_names(cell.candidate)}
    # A head that was trained on sampled batches takes features, whatever made them.
    if (
        cell.candidate.method not in SAMPLED
        and data.folder.manifest["backbone"]["name"] != "unknown"
    ):
        parts["backbone"] = _same_backbone(data)
    return parts


def _same_backbone(data: StudyData) -> Backbone:
    """Returns the backbone that made the features, with the weights of the config."""
    manifest = data.folder.manifest
    entry = manifest["backbone"]
    size = manifest["preprocessing"]["image_size"]
    backbone = load_backbone(entry["name"], data.weights or None, size)
    if {"name": backbone.name, **backbone.description} != entry:
        raise ValueError(
            f"the features were made by {entry}, and config.backbone is "
            f"{backbone.name}, {backbone.description}: export needs the same weights."
        )
    return backbone
