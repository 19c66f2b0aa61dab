"""Does a report agree with its ledger? Everything that the ledger fixes is computed again."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfdp.privacy._report_differences import other_versions, report_differences
from tfdp.privacy._report_text import NOISE_WORDS
from tfdp.privacy.accounting import ACCOUNTANTS, Guarantee
from tfdp.privacy.ledger import FILE_NAME as LEDGER_NAME
from tfdp.privacy.ledger import Ledger, LedgerError
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.report import PrivacyReport, build_report

REPORT_NAME = "privacy_report.json"


@dataclasses.dataclass(frozen=True)
class Verification:
    """What came of comparing a report with its ledger.

    Attributes:
        report: the report's file.
        ledger: the ledger's file.
        epsilon: what the ledger comes to at the report's delta, or None if it is damaged.
        delta: the report's.
        differences: one sentence for each thing on which they disagree.
        remarks: what else a reader should know, such as other versions of the accountants.
    """

    report: Path
    ledger: Path
    epsilon: float | None
    delta: float
    differences: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the report says what the ledger comes to."""
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
    """Says whether a privacy report agrees with its ledger.

    Epsilon by every accountant, the attacker's rates, the settings, coverage and the segments
    are computed again from the ledger, at the report's delta. What the ledger cannot know is not
    judged: delta itself, the planned number of steps, the protected unit, counts, and whether a
    seed was fixed.

    Args:
        path: a run's folder, with `privacy_report.json` and `ledger.jsonl` in it, or a report.
        ledger: the ledger, or its folder, if it is not beside the report.

    Returns:
        The result. A ledger that was changed, cut or damaged is a difference, not an error.

    Raises:
        FileNotFoundError: there is no report, or no ledger.
        ValueError: the file is not a report, or one of another schema version.
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
        tuple(report_differences(report, recomputed)),
        tuple(_remarks(report, recomputed)),
    )


def _stated_plan(path: Path, report: PrivacyReport) -> PrivacyPlan:
    """A plan of what the report states; only its delta and accountant decide anything."""
    values = report.values
    titles = {Guarantee(0, 0.5, name).accountant_title: name for name in ACCOUNTANTS[1:]}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan's own run was warned of a large delta
            return PrivacyPlan.from_dict(
                {
                    "num_examples": values["num_examples"],
                    "batch_size": values["expected_batch_size"],
                    "steps": values["planned_steps"],
                    "clip_norm": values["l2_norm_clip"],
                    "noise_multiplier": values["noise_multiplier"],
                    "delta": values["delta"] or 0.0,
                    "sampling": values["sampling"],
                    "adjacency": values["adjacency"],
                    "secure": values["noise_mechanism"] == NOISE_WORDS[True],
                    "records_per_unit": _records_per_unit(values),
                    "clipping": values.get("clipping", "flat"),
                    "accountant": titles.get(values["accountant"], "auto"),
                    "target_epsilon": values["target_epsilon"],
                }
            )
    except (KeyError, TypeError, ValueError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a complete privacy report: {what}") from error


def _records_per_unit(values: Mapping[str, Any]) -> int | None:
    """Of the latest segment, as the report's settings are."""
    segments = values["segments"]
    return segments[-1]["settings"].get("records_per_unit") if segments else None


def _ledger_path(report: Path, ledger: str | os.PathLike[str] | None) -> Path:
    path = report.parent if ledger is None else Path(ledger)
    path = path if path.suffix == ".jsonl" else path / LEDGER_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no ledger {path}, so the report cannot be checked: "
            "restore it, or say where it is by ledger=."
        )
    return path


def _remarks(stated: PrivacyReport, recomputed: PrivacyReport) -> Iterator[str]:
    made, known = recomputed["steps"], stated.values.get("steps")
    if isinstance(known, int) and made > known:
        yield f"the ledger holds {made - known} more updates: the report may simply be older"
    yield from other_versions(stated, recomputed)
