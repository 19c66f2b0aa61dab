"""The privacy report: what the guarantee is, what it assumes and what it does not cover."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdp.files import write_whole
from tfdp.privacy import interpretation, report_html, report_text
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.accounting import (
    epsilon_by_accountant,
    epsilon_without_amplification,
    tensorflow_privacy_statement,
)
from tfdp.privacy.groups import epsilon_of_group
from tfdp.privacy.ledger import Ledger
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.settings import Segment, StepSettings, common_adjacency

FILE_NAME = "privacy_report.json"
SCHEMA_VERSION = 1
_GROUPS = (2, 4, 8)
_PACKAGES = ("tensorflow", "keras", "tensorflow-privacy", "dp-accounting", "numpy", "scipy")
# What other code relies on in a report that is read; a number may be None.
_KINDS = {
    "notes": "list",
    "segments": "list of segments",
    "versions": "table",
    "counts": "table",
    "attacker_true_positive_rate": "table",
    "epsilon_of_groups": "table",
    "target_epsilon": "number",
    "epsilon": "number",
    "steps": "number",
    "planned_steps": "number",
}


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """A report as a dictionary of plain values; see `build_report` for the keys.

    Attributes:
        values: The content. Unknown figures are None; infinite ones are infinite floats here and
            the string "inf" in JSON.
    """

    values: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def epsilon(self) -> float:
        """Epsilon of all steps that were made; may be infinite."""
        return float(self.values["epsilon"])

    @property
    def delta(self) -> float:
        """The delta at which epsilon holds."""
        return float(self.values["delta"])

    def __str__(self) -> str:
        return self.summary_text()

    def summary_text(self) -> str:
        """Returns the guarantee in a few lines, for the end of a run."""
        return report_text.summary_text(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the content as values that JSON can hold (infinities as the string "inf")."""
        return to_json(self.values)

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Writes the content as JSON, whole or not at all."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the content as a web page: one file that opens offline, on any screen.

        Computing the curve of epsilon against steps takes a few seconds. The page states the day
        on which it was made. The JSON does not, so it can be reproduced byte by byte.
        """
        today = datetime.datetime.now(datetime.UTC).date()
        write_whole(path, report_html.render(self.values, today))

    @classmethod
    def read_json(cls, path: str | os.PathLike[str]) -> PrivacyReport:
        """Returns the report that `write_json` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is not a privacy report, or one of another schema version.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no privacy report {path}.")
        wrong = f"{path} is not a privacy report:"
        try:
            values = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{wrong} it holds no JSON ({error}).") from error
        if not isinstance(values, dict) or "schema_version" not in values:
            raise ValueError(f"{wrong} it has no schema_version.")
        if values["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"{path} has schema version {values['schema_version']!r}, and this tfdp reads "
                f"version {SCHEMA_VERSION}: use the tfdp that wrote it, or make the report again."
            )
        values = _from_json(values)
        for key, kind in _KINDS.items():
            if key in values and not _is(kind, values[key]):
                raise ValueError(f"{wrong} {key} is {values[key]!r}, expected a {kind}.")
        return cls(values)


def build_report(
    plan: PrivacyPlan,
    ledger: Ledger,
    *,
    counts: Mapping[str, Any] | None = None,
    fixed_seed: bool = False,
    unit: str = "",
    notes: Sequence[str] = (),
    public: Sequence[str] = (),
) -> PrivacyReport:
    """Returns the report on the steps in the ledger; the plan gives delta and what was intended.

    Keys: schema_version; epsilon, delta, accountant, target_epsilon, epsilon_rdp, epsilon_pld,
    epsilon_gaussian (None where that accountant has no answer), epsilon_without_amplification;
    noise_multiplier, clip_norm, clipping, sensitivity (of the sum: how far one example moves it),
    gradient_noise_multiplier and count_noise_standard_deviation (which differ from the noise
    multiplier and None if the clip norm follows a quantile), noise_standard_deviation,
    noise_convention, noise_mechanism; sampling, sampling_probability, expected_batch_size,
    num_examples, adjacency; steps (steps made), planned_steps, expected_epochs,
    expected_coverage; attacker_true_positive_rate (by false-positive rate); epsilon_of_groups (at
    most, by number of examples, or of users); unit, examples_per_user (None where a unit is one
    example), covered, not_covered, assumptions, public_data, notes; segments (of the ledger),
    counts, tensorflow_privacy_statement (None where users are protected: it speaks of examples),
    versions.

    Args:
        plan: The plan of the run; it must have a delta.
        ledger: The steps that were taken. Epsilon comes from them, not from the plan, and the
            settings are those of the latest step.
        counts: Further counts to state, such as unreadable examples by reason.
        fixed_seed: Whether sampling or noise came from a seed that somebody chose. For steps
            whose entries name their stream of randomness, the ledger knows that by itself.
        unit: What one example, or one user id, stands for.
        notes: Further remarks.
        public: Names of public data that shaped the model. They spend no privacy.

    Raises:
        ValueError: The plan has no delta.
    """
    if plan.delta is None:
        raise ValueError("a report needs a delta: give the plan its delta, commonly below 1/N.")
    segments = [segment for segment in ledger.segments() if segment.steps]
    settings = ledger.entries[-1].settings if ledger.entries else plan.settings
    used = list(dict.fromkeys(segment.settings for segment in segments)) or [settings]
    guarantee = account(segments, plan.delta, plan.accountant)
    fixed_seed = fixed_seed or any(entry.stream is not None for entry in ledger.entries)
    changed = any(segment.settings != plan.settings for segment in segments)
    remarks = [
        guarantee.note,
        report_text.SEED_NOTE if fixed_seed else "",
        report_text.CHANGED_NOTE if changed else "",
        *notes,
    ]
    return PrivacyReport(
        {
            "schema_version": SCHEMA_VERSION,
            "epsilon": guarantee.epsilon,
            "delta": plan.delta,
            "accountant": guarantee.accountant_title,
            "target_epsilon": plan.target_epsilon,
            **_figures(segments, plan.delta, guarantee.epsilon),
            **_step(settings),
            "adjacency": common_adjacency(segments or [Segment(settings, 0)]),
            "steps": sum(segment.steps for segment in segments),
            "planned_steps": plan.steps,
            "unit": report_text.protected(settings.examples_per_user, unit),
            "covered": report_text.covered(guarantee.epsilon),
            "not_covered": report_text.not_covered(settings.examples_per_user),
            "assumptions": report_text.assumptions(used, guarantee.epsilon),
            "public_data": list(public),
            "notes": [remark for remark in remarks if remark],
            "segments": [entry.to_dict() for entry in ledger.entries],
            "counts": dict(counts or {}),
            "tensorflow_privacy_statement": _statements(segments, plan.delta),
            "versions": versions(),
        }
    )


def _figures(segments: Sequence[Segment], delta: float, epsilon: float) -> dict[str, Any]:
    """Returns what follows from the steps by computation, besides epsilon itself."""
    by_accountant = epsilon_by_accountant(segments, delta)
    return {
        **{f"epsilon_{name}": by_accountant[name] for name in ("rdp", "pld", "gaussian")},
        "epsilon_without_amplification": epsilon_without_amplification(segments, delta),
        "expected_epochs": interpretation.expected_epochs(segments),
        "expected_coverage": interpretation.expected_coverage(segments),
        "attacker_true_positive_rate": {
            str(rate): interpretation.most_true_positives(rate, epsilon, delta)
            for rate in (0.01, 0.001)
        },
        "epsilon_of_groups": {
            str(size): epsilon_of_group(segments, delta, size) for size in _GROUPS
        },
    }


def _step(settings: StepSettings) -> dict[str, Any]:
    """Returns what the report states of the settings of a step."""
    adaptive = settings.count_noise is not None
    return {
        "noise_multiplier": settings.noise_multiplier,
        "clip_norm": settings.clip_norm,
        "clipping": settings.clipping.to_dict(),
        "sensitivity": settings.sensitivity * settings.clip_norm,
        "gradient_noise_multiplier": settings.gradient_noise_multiplier,
        "count_noise_standard_deviation": settings.count_noise,
        "noise_standard_deviation": settings.gradient_noise_multiplier * settings.clip_norm,
        "noise_convention": (
            report_text.ADAPTIVE_NOISE_CONVENTION if adaptive else report_text.NOISE_CONVENTION
        ),
        "noise_mechanism": report_text.NOISE_MECHANISM[settings.secure],
        "sampling": settings.sampling,
        "sampling_probability": settings.sampling_probability,
        "expected_batch_size": settings.batch_size,
        "num_examples": settings.num_examples,
        "examples_per_user": settings.examples_per_user,
    }


def versions() -> dict[str, str | None]:
    """Returns the versions of the code that the guarantee depends on."""
    found: dict[str, str | None] = {
        "tfdp": getattr(sys.modules.get("tfdp"), "__version__", None),
        "python": platform.python_version(),
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _statements(segments: Sequence[Segment], delta: float) -> str | None:
    """Returns tensorflow-privacy's statement on each setting; it has no words for users."""
    if any(segment.settings.examples_per_user is not None for segment in segments):
        return None
    by_settings: Counter[StepSettings] = Counter()
    for segment in segments:
        by_settings[segment.settings] += segment.steps
    texts = [
        tensorflow_privacy_statement(Segment(settings, steps), delta)
        for settings, steps in by_settings.items()
    ]
    return "\n\n".join(text for text in texts if text) or None


def to_json(value: Any) -> Any:
    """Returns the value as JSON can hold it: infinities become the string "inf"."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return math.inf if value == "inf" else value


def _is(kind: str, value: Any) -> bool:
    if kind == "list of segments":
        return isinstance(value, list) and all(
            isinstance(each, dict) and isinstance(each.get("settings"), dict) for each in value
        )
    if kind == "number":
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return isinstance(value, dict if kind == "table" else list)
