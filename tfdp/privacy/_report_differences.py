"""What a report says otherwise than the same report computed anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tfdp.privacy.report import CHANGED_NOTE, PrivacyReport

#: Computed figures may differ by rounding between machines, by this share of the larger one.
TOLERANCE = 1e-6

_FROM_LEDGER = (
    "epsilon accountant epsilon_rdp epsilon_pld epsilon_gaussian epsilon_without_amplification "
    "noise_multiplier l2_norm_clip clipping sensitivity gradient_noise_multiplier "
    "count_noise_standard_deviation noise_standard_deviation noise_convention noise_mechanism "
    "sampling sampling_probability expected_batch_size num_examples adjacency steps "
    "expected_epochs expected_coverage attacker_true_positive_rate epsilon_of_groups "
    "examples_per_user segments tensorflow_privacy_statement"
).split()
_FROM_PLAN = ("delta", "target_epsilon", "planned_steps")
#: What is said in the words of one version of this package.
_WORDS = ("covered", "not_covered", "assumptions")
_ACCOUNTING_PACKAGES = ("tensorflow-privacy", "dp-accounting")


#: What reports did not state before there was a choice.
_SINCE = ("clipping", "sensitivity", "gradient_noise_multiplier", "count_noise_standard_deviation")


def report_differences(stated: PrivacyReport, recomputed: PrivacyReport) -> Iterator[str]:
    """One sentence for each thing that a report gets wrong.

    Args:
        stated: the report in question.
        recomputed: the report on its ledger.
    """
    for key in (*_FROM_PLAN, *_FROM_LEDGER):
        if key == "tensorflow_privacy_statement" and other_versions(stated, recomputed):
            continue  # its wording is that of one version
        if key == "epsilon_of_groups" and not stated.values.get(key):
            continue  # a report from before the schema had it
        if key in _SINCE and not any(name in stated.values for name in _SINCE):
            continue
        yield from _compare(key, stated.values.get(key, _MISSING), recomputed[key])
    if not other_words(stated, recomputed):
        for key in _WORDS:
            yield from _compare(key, stated.values.get(key, _MISSING), recomputed[key])
        unit, true = str(stated.values.get("unit")), recomputed["unit"].partition(" (")[0]
        if unit != true and not unit.startswith(f"{true} ("):  # a name of it may follow
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
        return math.isclose(stated, true, rel_tol=TOLERANCE)
    return bool(stated == true)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def other_words(stated: PrivacyReport, recomputed: PrivacyReport) -> str:
    """One sentence if coverage, assumptions and unit are in the words of another version."""
    theirs = (stated.values.get("versions") or {}).get("tfdp")
    if theirs == recomputed["versions"]["tfdp"] and stated.values.get("assumptions") is not None:
        return ""
    return (
        f"unit, covered, not_covered and assumptions are not judged: they are in the words of "
        f"another tfdp ({theirs}, this is {recomputed['versions']['tfdp']})"
    )


def other_versions(stated: PrivacyReport, recomputed: PrivacyReport) -> list[str]:
    """One sentence for each accounting package of another version."""
    theirs, ours = stated.values.get("versions") or {}, recomputed["versions"]
    return [
        f"the report was made with {package} {theirs.get(package)}, this is {ours.get(package)}"
        for package in _ACCOUNTING_PACKAGES
        if theirs.get(package) != ours.get(package)
    ]
