"""The privacy report: what the guarantee is, what it rests on and what it does not cover."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tfdp.files import write_whole
from tfdp.privacy import _report_file as file
from tfdp.privacy import _report_scope as scope
from tfdp.privacy import interpretation
from tfdp.privacy._report_text import NOISE_WORDS, summary_text
from tfdp.privacy.accounting import epsilon as account
from tfdp.privacy.accounting import (
    epsilon_by_accountant,
    epsilon_without_amplification,
    tensorflow_privacy_statement,
)
from tfdp.privacy.groups import epsilon_of_group
from tfdp.privacy.html import render
from tfdp.privacy.ledger import Ledger
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.settings import Segment, common_adjacency

SCHEMA_VERSION = 1
NOISE_CONVENTION = (
    "standard deviation on the clipped sum = noise_multiplier * l2_norm_clip; the noisy sum is "
    "then divided by expected_batch_size"
)
ADAPTIVE_NOISE_CONVENTION = (
    "noise_multiplier is what the sum and the count of unclipped records cost together; standard "
    "deviation on the clipped sum = gradient_noise_multiplier * the clip norm of the moment, which "
    "starts at l2_norm_clip; the noisy sum is then divided by expected_batch_size"
)
CHANGED_NOTE = (
    "some steps ran under other settings than the plan's; epsilon counts them all, the single "
    "settings are listed under segments"
)
SEED_NOTE = (
    "a fixed seed was used: whoever knows the seed can take the noise off again, so this run is "
    "a test and carries no guarantee against them; releases that share a seed share their noise: "
    "their difference has none, and composition does not hold for them"
)
# Keys that the schema gained, and what reports without them mean.
_LATER_KEYS: dict[str, Any] = {
    "noise_mechanism": NOISE_WORDS[False],
    "epsilon_of_groups": {},
    "public_data": [],
    "assumptions": None,
}
_GROUPS = (2, 4, 8)
_PACKAGES = ("tensorflow", "keras", "tensorflow-privacy", "dp-accounting", "numpy", "scipy")


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """A report as a dictionary of plain values; see `build_report` for the keys.

    Attributes:
        values: the content. Figures that cannot be had are None; infinite ones are infinite
            floats here and the string "inf" in JSON.
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

    def to_dict(self) -> dict[str, Any]:
        """The content as values that JSON can hold (infinities as the string "inf")."""
        return file.to_json(self.values)

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Writes the content as JSON, whole or not at all."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the content for people: one file that opens offline, on any screen.

        Epsilon against steps is computed for its curve, a few seconds of work. The page bears
        the day on which it was made; the JSON does not, so that it can be made again to the byte.
        """
        today = datetime.datetime.now(datetime.UTC).date()
        write_whole(path, render(self.values, today))

    @classmethod
    def read_json(cls, path: str | os.PathLike[str]) -> PrivacyReport:
        """The inverse of `write_json`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a privacy report, or one of another schema version.
        """
        values = file.read_values(path, SCHEMA_VERSION)
        return cls({**_LATER_KEYS, "examples_per_user": _unit_of_segments(values), **values})

    def summary_text(self) -> str:
        """The guarantee in a few lines, for the end of a run."""
        return summary_text(self.values)


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
    """The report on what the ledger holds; the plan supplies delta and what was intended.

    Keys: schema_version; epsilon, delta, accountant, target_epsilon, epsilon_rdp, epsilon_pld,
    epsilon_gaussian (None where that accountant has no answer), epsilon_without_amplification;
    noise_multiplier, l2_norm_clip, clipping, sensitivity (of the sum: how far one record moves
    it), gradient_noise_multiplier and count_noise_standard_deviation (which differ from the noise
    multiplier and None if the clip norm follows a quantile), noise_standard_deviation,
    noise_convention, noise_mechanism; sampling, sampling_probability, expected_batch_size,
    num_examples, adjacency; steps (steps made), planned_steps, expected_epochs,
    expected_coverage; attacker_true_positive_rate (by false positive rate); epsilon_of_groups (at
    most, by number of records, or of persons); unit, examples_per_user (None where a unit is one
    record), covered, not_covered, assumptions, public_data, notes; segments (of the ledger),
    counts, tensorflow_privacy_statement (None where persons are protected: it speaks of records),
    versions.

    Args:
        plan: the plan of the run; it must have a delta.
        ledger: the steps that were made. Epsilon comes from them, not from the plan, and the
            settings are those of the latest of them.
        counts: further counts to carry, such as unreadable records by reason.
        fixed_seed: whether sampling or noise came from a seed that somebody chose. Of steps
            whose entries name their stream of randomness the ledger knows that by itself.
        unit: what one record, or one person's group id, stands for.
        notes: further remarks.
        public: public data that shaped the model: they cost nothing, and are named.

    Raises:
        ValueError: the plan has no delta.
    """
    if plan.delta is None:
        raise ValueError("a report needs a delta: give the plan its delta, commonly below 1/N.")
    segments = [segment for segment in ledger.segments() if segment.steps]
    guarantee = account(segments, plan.delta, plan.accountant)
    by_accountant = epsilon_by_accountant(segments, plan.delta)
    settings = ledger.entries[-1].settings if ledger.entries else plan.settings
    used = list(dict.fromkeys(segment.settings for segment in segments)) or [settings]
    fixed_seed = fixed_seed or any(entry.stream is not None for entry in ledger.entries)
    changed = any(segment.settings != plan.settings for segment in segments)
    remarks = [
        guarantee.note,
        SEED_NOTE if fixed_seed else "",
        CHANGED_NOTE if changed else "",
        *notes,
    ]
    return PrivacyReport(
        {
            "schema_version": SCHEMA_VERSION,
            "epsilon": guarantee.epsilon,
            "delta": plan.delta,
            "accountant": guarantee.accountant_title,
            "target_epsilon": plan.target_epsilon,
            **{f"epsilon_{name}": by_accountant[name] for name in ("rdp", "pld", "gaussian")},
            "epsilon_without_amplification": epsilon_without_amplification(segments, plan.delta),
            "noise_multiplier": settings.noise_multiplier,
            "l2_norm_clip": settings.clip_norm,
            "clipping": settings.clipping.to_dict(),
            "sensitivity": settings.sensitivity * settings.clip_norm,
            "gradient_noise_multiplier": settings.gradient_noise_multiplier,
            "count_noise_standard_deviation": settings.count_noise,
            "noise_standard_deviation": settings.gradient_noise_multiplier * settings.clip_norm,
            "noise_convention": (
                NOISE_CONVENTION if settings.count_noise is None else ADAPTIVE_NOISE_CONVENTION
            ),
            "noise_mechanism": NOISE_WORDS[settings.secure],
            "sampling": settings.sampling,
            "sampling_probability": settings.sampling_probability,
            "expected_batch_size": settings.batch_size,
            "num_examples": settings.num_examples,
            "adjacency": common_adjacency(segments or [Segment(settings, 0)]),
            "steps": sum(segment.steps for segment in segments),
            "planned_steps": plan.steps,
            "expected_epochs": interpretation.expected_epochs(segments),
            "expected_coverage": interpretation.expected_coverage(segments),
            "attacker_true_positive_rate": {
                str(rate): interpretation.most_true_positives(rate, guarantee.epsilon, plan.delta)
                for rate in (0.01, 0.001)
            },
            "epsilon_of_groups": {
                str(size): epsilon_of_group(segments, plan.delta, size) for size in _GROUPS
            },
            "unit": scope.unit_words(settings.examples_per_user, unit),
            "examples_per_user": settings.examples_per_user,
            "covered": scope.covered(guarantee.epsilon),
            "not_covered": scope.not_covered(settings.examples_per_user),
            "assumptions": scope.assumptions(used, guarantee.epsilon),
            "public_data": list(public),
            "notes": [remark for remark in remarks if remark],
            "segments": [entry.to_dict() for entry in ledger.entries],
            "counts": dict(counts or {}),
            "tensorflow_privacy_statement": _statements(segments, plan.delta),
            "versions": versions(),
        }
    )


def versions() -> dict[str, str | None]:
    """Versions of the code that the guarantee depends on."""
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


def _unit_of_segments(values: Mapping[str, Any]) -> int | None:
    """Of the latest segment, as a report's settings are."""
    segments = values.get("segments")
    return segments[-1]["settings"].get("examples_per_user") if segments else None


def _statements(segments: Sequence[Segment], delta: float) -> str | None:
    """tensorflow-privacy's statement on each setting by itself; it has no words for persons."""
    if any(segment.settings.examples_per_user is not None for segment in segments):
        return None
    by_settings: dict[Any, int] = {}
    for segment in segments:
        by_settings[segment.settings] = by_settings.get(segment.settings, 0) + segment.steps
    texts = [
        tensorflow_privacy_statement(Segment(settings, steps), delta)
        for settings, steps in by_settings.items()
    ]
    return "\n\n".join(text for text in texts if text) or None
