"""Compares a report with its ledger: everything that the ledger fixes is computed again."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfdp.privacy.accounting import accountant_with_title, epsilon_by_accountant
from tfdp.privacy.ledger import FILE_NAME as LEDGER_NAME
from tfdp.privacy.ledger import Ledger, LedgerError
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.report import FILE_NAME as REPORT_NAME
from tfdp.privacy.report import PrivacyReport, build_report
from tfdp.privacy.report_text import CHANGED_NOTE, NOISE_MECHANISM
from tfdp.privacy.settings import Segment

#: Calibrated noise comes this near its target, with room for other versions and rounding.
_CALIBRATION = 1e-3
_LITTLE_NOISE = 2e-3  # where calibration stops short of a large target
#: Computed figures may differ by rounding between machines, by this fraction of the larger one.
_TOLERANCE = 1e-6
#: What a report says that is not computed from its ledger.
_NOT_COMPUTED = "schema_version unit public_data notes counts versions".split()
#: What is said in the words of one version of this package.
_WORDS = ("covered", "not_covered", "assumptions")
_ACCOUNTING_PACKAGES = ("tensorflow-privacy", "dp-accounting")


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of comparing a report with its ledger.

    Attributes:
        report: The report's file.
        ledger: The ledger's file.
        epsilon: The ledger's epsilon at the report's delta, or None if the ledger is damaged.
        delta: The report's.
        differences: One sentence for each thing on which they disagree.
        remarks: What else a reader should know, such as other versions of the accountants.
    """

    report: Path
    ledger: Path
    epsilon: float | None
    delta: float
    differences: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the report states what the ledger gives."""
        return not self.differences

    def __str__(self) -> str:
        if self.agrees:
            first = (
                f"{self.report} agrees with {self.ledger}: "
                f"(epsilon, delta) = ({self.epsilon:.4g}, {self.delta:.3g})"
            )
        else:
            first = f"{self.report} does NOT agree with {self.ledger}:"
        rows = [*self.differences, *(f"note: {remark}" for remark in self.remarks)]
        return "\n".join([first, *(f"  {row}" for row in rows)])


def verify(
    path: str | os.PathLike[str], ledger: str | os.PathLike[str] | None = None
) -> Verification:
    """Returns whether a privacy report agrees with its ledger.

    Epsilon by every accountant, the attacker's rates, the settings, coverage and the segments
    are computed again from the ledger, at the report's delta. So are the statements about them:
    covered and not covered, assumptions, whether an example or a user is the unit, and the notes on
    fixed seeds and changed settings (the wording only where the same tfdp made the report). Where
    all steps had the same settings, the target and the planned number of steps must fit the noise.

    What the ledger cannot know is not compared: delta itself, a target and a number of planned
    steps that fit the noise (or one of them missing), what an example is called, public data,
    counts, further notes and keys, versions, and a seed where the ledger names no stream of
    randomness (it names one for seeded calls of fit).

    Args:
        path: A run's folder, with `privacy_report.json` and `ledger.jsonl` in it, or a report.
        ledger: The ledger, or its folder, if it is not beside the report.

    Returns:
        The result. A ledger that was changed, cut or damaged is a difference, not an error.

    Raises:
        FileNotFoundError: There is no report, or no ledger.
        ValueError: The file is not a report, or one of another schema version.
    """
    report_path = Path(path) / REPORT_NAME if Path(path).is_dir() else Path(path)
    report = PrivacyReport.read_json(report_path)
    ledger_path = _ledger_path(report_path, ledger)
    plan = _stated_plan(report_path, report)
    try:
        record = Ledger.read(ledger_path)
        recomputed = build_report(plan, record)
    except LedgerError as error:
        return Verification(report_path, ledger_path, None, report["delta"], (str(error),))
    return Verification(
        report_path,
        ledger_path,
        recomputed["epsilon"],
        report["delta"],
        (*report_differences(report, recomputed), *_misfit(report, record)),
        tuple(_remarks(report, recomputed)),
    )


def _stated_plan(path: Path, report: PrivacyReport) -> PrivacyPlan:
    """Returns a plan of what the report states; only its delta and accountant decide anything."""
    values = report.values
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan's own run was warned of a large delta
            plan = PrivacyPlan.from_dict(
                {
                    "num_examples": values["num_examples"],
                    "batch_size": values["expected_batch_size"],
                    "steps": values["planned_steps"],
                    "clip_norm": values["clip_norm"],
                    "noise_multiplier": values["noise_multiplier"],
                    "delta": values["delta"] or 0.0,
                    "sampling": values["sampling"],
                    "adjacency": values["adjacency"],
                    "secure": values["noise_mechanism"] == NOISE_MECHANISM[True],
                    "examples_per_user": _examples_per_user(values),
                    "clipping": values["clipping"],
                    "accountant": accountant_with_title(values["accountant"]),
                    "target_epsilon": values["target_epsilon"],
                }
            )
        values["notes"]  # is asked for too
    except (KeyError, TypeError, ValueError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a complete privacy report: {what}") from error
    return plan


def _examples_per_user(values: Mapping[str, Any]) -> int | None:
    """Returns that of the latest segment, as the report's settings are."""
    segments = values["segments"]
    if not segments:
        return values["examples_per_user"]
    return segments[-1]["settings"].get("examples_per_user")


def _misfit(report: PrivacyReport, ledger: Ledger) -> Iterator[str]:
    """The noise of a plan with a target follows from the target and the number of steps."""
    values, settings = report.values, {entry.settings for entry in ledger.entries}
    if values["target_epsilon"] is None or len(settings) != 1 or CHANGED_NOTE in values["notes"]:
        return
    target, whole = values["target_epsilon"], Segment(settings.pop(), values["planned_steps"])
    figures = epsilon_by_accountant([whole], report.delta)
    least = min((figure for figure in figures.values() if figure is not None), default=None)
    if least is None or whole.settings.noise_multiplier < _LITTLE_NOISE:
        return
    # The plan was calibrated by the accountant that the report names, or by a tighter one.
    own = figures.get(accountant_with_title(values["accountant"]))
    too_much = least * (1 - _CALIBRATION) > target
    if too_much or (own is not None and own * (1 + _CALIBRATION) < target):
        yield (
            f"target_epsilon and planned_steps: {target:.6g} and {whole.steps} in the report, "
            f"but {whole.steps} steps with the ledger's noise give epsilon {least:.6g}"
        )


def _ledger_path(report: Path, ledger: str | os.PathLike[str] | None) -> Path:
    path = report.parent if ledger is None else Path(ledger)
    path = path if path.suffix == ".jsonl" else path / LEDGER_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no ledger {path}, so the report cannot be verified: "
            "restore it, or pass its path as ledger=."
        )
    return path


def _remarks(stated: PrivacyReport, recomputed: PrivacyReport) -> Iterator[str]:
    made, known = recomputed["steps"], stated.values.get("steps")
    if isinstance(known, int) and made > known:
        yield f"the ledger holds {made - known} more steps: the report may simply be older"
    theirs, ours = _versions(stated), _versions(recomputed)
    for package in _ACCOUNTING_PACKAGES:
        if theirs.get(package) != ours[package]:
            yield (
                f"the report was made with {package} {theirs.get(package)}, this is {ours[package]}"
            )
    if theirs.get("tfdp") != ours["tfdp"]:
        yield (
            "unit, covered, not_covered and assumptions were not compared: another version of tfdp "
            f"worded them ({theirs.get('tfdp')}, this is {ours['tfdp']})"
        )


def _versions(report: PrivacyReport) -> dict[str, str]:
    return report.values.get("versions") or {}


def report_differences(stated: PrivacyReport, recomputed: PrivacyReport) -> Iterator[str]:
    """Yields one sentence for each thing that a report gets wrong.

    Args:
        stated: The report in question.
        recomputed: The report on its ledger.
    """
    theirs, ours = _versions(stated), _versions(recomputed)
    # The statement of tensorflow-privacy, and our words, are those of one version.
    skipped = {*_NOT_COMPUTED}
    if any(theirs.get(package) != ours[package] for package in _ACCOUNTING_PACKAGES):
        skipped.add("tensorflow_privacy_statement")
    other_words = theirs.get("tfdp") != ours["tfdp"]
    if other_words:
        skipped.update(_WORDS)
    for key, value in recomputed.values.items():
        if key not in skipped:
            yield from _compare(key, stated.values.get(key, _MISSING), value)
    unit, true = str(stated.values.get("unit")), recomputed["unit"].partition(" (")[0]
    if not other_words and unit != true and not unit.startswith(f"{true} ("):  # a name may follow
        yield f"unit: {_figure(unit)} in the report, {_figure(true)} recomputed"
    notes = stated.values.get("notes") or ()
    for note in recomputed["notes"]:
        if note == CHANGED_NOTE and stated.values.get("releases"):
            continue  # a last layer's report: it lists every release with its own noise
        if note not in notes:
            yield f"notes: the report lacks {note!r}"


class _Missing:
    def __str__(self) -> str:
        return "nothing"


_MISSING = _Missing()


def _compare(key: str, stated: Any, true: Any) -> Iterator[str]:
    """Goes down to the smallest parts that differ, so that they can be named."""
    if isinstance(stated, Mapping) and isinstance(true, Mapping):
        for name in [*true, *(name for name in stated if name not in true)]:
            yield from _compare(
                f"{key}.{name}", stated.get(name, _MISSING), true.get(name, _MISSING)
            )
    elif isinstance(stated, list) and isinstance(true, list):
        if len(stated) != len(true):
            yield f"{key}: {len(stated)} in the report, {len(true)} recomputed"
        for number, (left, right) in enumerate(zip(stated, true, strict=False), start=1):
            yield from _compare(f"{key}[{number}]", left, right)
    elif not _same(stated, true):
        yield f"{key}: {_figure(stated)} in the report, {_figure(true)} recomputed"


def _same(stated: Any, true: Any) -> bool:
    if _is_number(stated) and _is_number(true):
        return math.isclose(stated, true, rel_tol=_TOLERANCE)
    return bool(stated == true)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
