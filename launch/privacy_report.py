"""Makes the privacy report of a run anew, from its config and its ledger alone.

    python -m launch.privacy_report --workdir=runs/quickstart

No data and no weights are read, so it answers while a run goes on, after a crash, and for whoever
was only given the folder's config.json and ledger.jsonl. A report that is there already and says
otherwise is not touched, and the program ends with exit code 1; --overwrite replaces it.

    python -m launch.privacy_report --workdir=runs/a --workdir=runs/b --output=runs/together

Several folders, of training runs or of studies of last layers, are added up: what all of them on
the same examples cost together, as the models of a search do. Nothing in them is changed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from absl import flags

from launch._cli import fail, run_program
from launch._spent import Runs, read_config
from launch._workdir import Workdir
from tfdp.files import write_whole
from tfdp.privacy import Ledger, PrivacyPlan, PrivacyReport, compose
from tfdp.privacy.composition import Composition
from tfdp.privacy.report import build_report
from tfdp.privacy.verification import report_differences

_WORKDIR = flags.DEFINE_multi_string("workdir", None, "Folder of the run; several to add them up.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write the sum of several runs to.")
_DELTA = flags.DEFINE_float("delta", None, "Delta of the sum; by default the runs' smallest.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace a report that says otherwise.")

_ROUNDING = 1e-6
_ANEW_NOTE = "made anew from config and ledger: counts of examples are not in it"


def main(_: list[str]) -> None:
    folders = _WORKDIR.value or [None]
    if len(folders) > 1 or (folders[0] and (Path(folders[0]) / "results.csv").is_file()):
        print_together([_existing(folder).path for folder in folders], _DELTA.value, _OUTPUT.value)
        return
    for flag in (_DELTA, _OUTPUT):
        if flag.value is not None:
            raise ValueError(
                f"--{flag.name} is for the sum over several folders, or of a study: the report of "
                "one run is at its own delta and stays in its folder."
            )
    workdir = _existing(folders[0])
    report = recomputed(workdir)
    stated = None if _OVERWRITE.value else _stated(workdir)
    if stated is not None:
        differences = list(report_differences(stated, report))
        if differences:
            fail(
                f"{workdir.report} disagrees with config and ledger ({'; '.join(differences)}). "
                "Nothing was written; --overwrite replaces it."
            )
    report = _completed(report, stated)
    report.write_json(workdir.report)
    report.write_html(workdir.report_page)
    print(report.summary_text())
    print(f"Written to {workdir.report} and {workdir.report_page.name}")


def print_together(folders: list[Path], delta: float | None, output: str | None) -> None:
    """What several runs cost together, printed and, where asked for, written."""
    runs = Runs()
    for folder in folders:
        runs.add(folder)
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"--delta={delta:g}: expected a number above 0 and below 1.")
    together = compose(runs.parts, _smallest(runs.deltas) if delta is None else delta)
    print(together)
    for note in runs.notes:
        print(f"  note: {note}")
    if output:
        path = write_together(together, runs.notes, Path(output))
        print(f"Written to {path}")


def write_together(together: Composition, notes: list[str], folder: Path) -> Path:
    """Writes the sum as JSON and returns the file."""
    path = folder / "privacy_composition.json"
    values = {**together.to_dict(), "notes": notes}
    write_whole(path, json.dumps(values, indent=2, allow_nan=False) + "\n")
    return path


def _smallest(deltas: set[float]) -> float:
    if not deltas:
        raise ValueError("none of the runs states a delta: give --delta, commonly below 1/N.")
    return min(deltas)


def recomputed(workdir: Workdir) -> PrivacyReport:
    """The report that config and ledger come to.

    Raises:
        FileNotFoundError: one of them is missing.
        ValueError: one of them is damaged, or not of such a run.
    """
    config = _config(workdir.config)
    plan = PrivacyPlan(**config["privacy"])
    if not workdir.ledger.is_file():
        raise FileNotFoundError(
            f"there is no {workdir.ledger}: without the ledger, what was spent is unknown. "
            "Restore it; every checkpoint carries a copy."
        )
    ledger = Ledger.read(workdir.ledger)
    seed = (config.get("training") or {}).get("seed")
    return build_report(_with_noise_of(ledger, plan), ledger, fixed_seed=seed is not None)


def _with_noise_of(ledger: Ledger, plan: PrivacyPlan) -> PrivacyPlan:
    """The plan with the noise that the run calibrated, where another machine rounds otherwise."""
    noises = {entry.settings.noise_multiplier for entry in ledger.entries}
    for noise in noises:
        if math.isclose(noise, plan.noise_multiplier, rel_tol=_ROUNDING):
            return PrivacyPlan.from_dict({**plan.to_dict(), "noise_multiplier": noise})
    return plan


def _existing(path: str | None) -> Workdir:
    """The folder of a run; nothing is made where there is none."""
    if path and not Path(path).exists():
        raise FileNotFoundError(f"there is no folder {path}; --workdir names the one of a run.")
    return Workdir(path)


def _config(path: Path) -> dict[str, Any]:
    config = read_config(path)
    if not isinstance(config, dict) or not isinstance(config.get("privacy"), dict):
        raise ValueError(f"{path} is not the config of a private run: it has no section privacy.")
    return config


def _stated(workdir: Workdir) -> PrivacyReport | None:
    """The report that is there, if there is one."""
    if not workdir.report.exists():
        return None
    try:
        return PrivacyReport.read_json(workdir.report)
    except ValueError as error:
        raise ValueError(f"{error} Nothing was written; --overwrite replaces it.") from error


def _completed(report: PrivacyReport, stated: PrivacyReport | None) -> PrivacyReport:
    """With what only the run itself could count, from a report that was found right."""
    if stated is None:
        return PrivacyReport({**report.values, "notes": [*report["notes"], _ANEW_NOTE]})
    kept: dict[str, Any] = {
        key: stated[key]
        for key in ("unit", "counts", "notes", "public_data")
        if key in stated.values
    }
    return PrivacyReport({**report.values, **kept})


if __name__ == "__main__":
    run_program(main)
