"""The privacy report in words, for the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfdp.privacy import _report_scope as scope
from tfdp.privacy import interpretation

SAMPLING_WORDS = {
    "poisson": "Poisson, each record by its own coin",
    "full_batch": "full batch, every record in every step",
    "fixed_size": "fixed size, without replacement, anew each step",
    "none": "passes in an order nobody vouches for: no amplification",
    "arbitrary": "unknown, any record in any update: no amplification",
}

NOISE_WORDS = {
    False: "Gaussian, drawn in floating point",
    True: (
        "discrete Gaussian, drawn exactly, in integers on a grid: its step is the largest power of "
        "two with step * sqrt(weights) <= l2_norm_clip / 2^14, and rounding to it is charged as "
        "2^-14 more sensitivity"
    ),
}


def sampling_words(v: Mapping[str, Any]) -> str:
    """How the records of a step are chosen."""
    return scope.of_units(SAMPLING_WORDS[v["sampling"]], v)


def clipping_words(v: Mapping[str, Any]) -> str:
    """How records are clipped, and what bounds each one's part."""
    how, bound = v.get("clipping") or {"kind": "flat"}, f"{v['l2_norm_clip']:g}"
    if how["kind"] == "automatic":
        return f"automatic, {bound} / (norm + {how['gamma']:g}): no part's norm exceeds {bound}"
    if how["kind"] == "per_layer":
        parts = [f"{path} {c:g}" for path, c in how["bounds"].items()]
        shares = ", ".join(parts) or "equal bounds"
        return f"each layer apart ({shares}): the root of the sum of squares is {bound}"
    if how["kind"] == "quantile":
        return (
            f"the clip norm starts at {bound} and follows the {how['quantile']:g} quantile of the "
            f"norms, by a count with noise of standard deviation "
            f"{v['count_noise_standard_deviation']:.5g}; the noise multiplier covers it, and "
            f"leaves {v['gradient_noise_multiplier']:.5g} clip norms on the sum"
        )
    return f"all weights jointly: no {scope.of_units('record', v)}'s part has a norm above {bound}"


def summary_text(v: Mapping[str, Any]) -> str:
    """The guarantee in a few lines.

    Args:
        v: the values of a `PrivacyReport`.
    """
    attack = v["attacker_true_positive_rate"]
    rows = [
        ("means", interpretation.meaning(v["epsilon"], v["delta"], scope.of_units("record", v))),
        ("protects", f"{v['unit']}; {scope.adjacency_words(v)}"),
        ("against", scope.attacker_words(v)),
        ("accountant", _accountants(v)),
        ("sampling", f"{sampling_words(v)}; {_rate(v)}"),
        ("steps", f"{v['steps']} of {v['planned_steps']} planned; {_coverage(v)}"),
        ("clipping", clipping_words(v)),
        (
            "noise",
            f"multiplier {v['noise_multiplier']:.5g}, clip norm {v['l2_norm_clip']:g}: "
            f"standard deviation {v['noise_standard_deviation']:.5g} on the clipped sum; "
            f"{v['noise_mechanism']}",
        ),
        (
            "attacker",
            f"finds at most {attack['0.01']:.2%} of the members at 1 % false alarms, "
            f"{attack['0.001']:.2%} at 0.1 %",
        ),
        ("groups", _groups(v)),
        ("covered", scope.covered_words(v)),
        ("not covered", "; ".join(v["not_covered"])),
    ]
    rows += [("assumed", text) for text in v.get("assumptions") or ()]
    if v["public_data"]:
        rows.append(("public data", f"{'; '.join(v['public_data'])}: cost nothing"))
    rows += [("note", note) for note in v["notes"]]
    lines = [f"Privacy: (epsilon, delta) = ({v['epsilon']:.4g}, {v['delta']:.3g})"]
    return "\n".join(lines + [f"  {name:<12}{text}" for name, text in rows])


def _accountants(v: Mapping[str, Any]) -> str:
    others = {"RDP": v["epsilon_rdp"], "PLD": v["epsilon_pld"], "Gaussian": v["epsilon_gaussian"]}
    figures = [f"{name} {value:.4g}" for name, value in others.items() if value is not None]
    figures.append(f"without amplification {v['epsilon_without_amplification']:.4g}")
    return f"{v['accountant']}; {', '.join(figures)}"


def _groups(v: Mapping[str, Any]) -> str:
    figures = [f"{size}: {epsilon:.4g}" for size, epsilon in v["epsilon_of_groups"].items()]
    return f"epsilon for {scope.group_words(v)} is at most {', '.join(figures) or 'unknown'}"


def _rate(v: Mapping[str, Any]) -> str:
    q = v["sampling_probability"]
    return f"q = {v['expected_batch_size']}/{v['num_examples']} = {q:.4g}"


def _coverage(v: Mapping[str, Any]) -> str:
    used = scope.of_units("each record used", v)
    epochs = f"{used} {v['expected_epochs']:.3g} times on average"
    if v["expected_coverage"] is None:
        return epochs
    return f"{epochs}, {v['expected_coverage']:.2%} of them at least once"
