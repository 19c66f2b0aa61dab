"""Whom a guarantee protects, from whom, what it covers and what it rests on: said once, here.

The report in JSON, in text and as a page all take their words from this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfdp.privacy.settings import StepSettings

_ADJACENCY = {
    "add_or_remove_one": "data sets that differ by the presence of one record",
    "zero_out": "data sets in which one record is, or is not, blanked out",
    "replace_one": "data sets in which one record is replaced by another",
}
_SAMPLING = {
    "poisson": "each record took part in each step on its own coin, unknown to the attacker",
    "full_batch": "every record took part in every step",
    "fixed_size": "each step drew its records anew, uniformly, unknown to the attacker",
    "none": "each record was used at most once in a pass over the data",
    "arbitrary": "nothing about the order in which records were used",
}
_COVERED = (
    "every weight and optimizer state of the model, at every step and in every checkpoint, and "
    "anything computed from them alone",
)
_NOT_COVERED = (
    "exact counts of private records (of examples used, left out or unreadable) in checkpoints, "
    "logs and reports: they are for those who hold the data",
    "figures computed from the private records themselves: training loss and metrics, gradient "
    "norms, logs",
    "choices made by looking at private results, such as hyper-parameters tuned on other runs",
    "a vocabulary, statistics or initial weights that were not public",
)


def unit_words(examples_per_user: int | None, name: str = "") -> str:
    """What is protected.

    Args:
        examples_per_user: of the settings.
        name: what such a unit is in these data.
    """
    words = "one record"
    if examples_per_user is not None:
        used = f"at most {examples_per_user} of them" if examples_per_user > 1 else "one of them"
        words = f"one person: all records with one group id, {used} used in a step"
    return f"{words} ({name})" if name else words


def of_units(text: str, v: Mapping[str, Any]) -> str:
    """A text about records, about persons instead where they are what is protected.

    Args:
        text: speaks of records.
        v: the values of a `PrivacyReport`.
    """
    return _of_units(text, v.get("examples_per_user") is not None)


def _of_units(text: str, persons: bool) -> str:
    return text.replace("record", "person") if persons else text


def adjacency_words(v: Mapping[str, Any]) -> str:
    """Which data sets count as neighbours."""
    return of_units(_ADJACENCY[v["adjacency"]], v)


def attacker_words(v: Mapping[str, Any]) -> str:
    """Against whom the guarantee holds; nobody where epsilon is infinite."""
    if math.isinf(v["epsilon"]):
        return "nobody: epsilon is infinite"
    return of_units(
        "whoever sees the weights, at any update, and knows the program and all other records, "
        "with any method, but not the key (computationally bounded: the noise comes from a "
        "128-bit key)",
        v,
    )


def group_words(v: Mapping[str, Any]) -> str:
    """What several units that belong together are."""
    if v.get("examples_per_user") is not None:
        return "persons who belong together"
    return "records of one person"


def covered(epsilon: float) -> list[str]:
    """What the guarantee speaks of: nothing where epsilon is infinite."""
    return [] if math.isinf(epsilon) else list(_COVERED)


def covered_words(v: Mapping[str, Any]) -> str:
    """The same in a line."""
    return "; ".join(v["covered"]) or "nothing: epsilon is infinite"


def not_covered(examples_per_user: int | None) -> list[str]:
    """What the guarantee does not speak of."""
    several = "records" if examples_per_user is None else "group ids, and groups of people"
    return [*_NOT_COVERED, f"people with several {several}: see epsilon_of_groups"]


def assumptions(settings: Sequence[StepSettings], epsilon: float) -> list[str]:
    """What must be true for the figure to hold; nothing where it promises nothing.

    Args:
        settings: those of the steps, one at least.
        epsilon: the figure.
    """
    if math.isinf(epsilon):
        return []
    persons = settings[-1].examples_per_user is not None
    sizes = " and ".join(f"{size:,}" for size in sorted({s.num_examples for s in settings}))
    texts = [f"the number of records, {sizes}, is public"]
    texts += [
        f"sampling: {_SAMPLING[name]}" for name in dict.fromkeys(s.sampling for s in settings)
    ]
    texts.append(f"no record adds more than {_bound(settings)} to the sum of gradients")
    texts = [_of_units(text, persons) for text in texts]
    if persons:
        texts.append("all records of a person bear the same group id")
    texts.append(
        "the noise is as described, and its 128-bit key is secret: nobody knows it, and nobody can "
        "tell what is drawn from it from true randomness"
    )
    if not all(s.secure for s in settings):
        texts.append("attacks on the rounding of floating-point noise are left aside")
    texts.append("attacks on the rounding of floating-point sums of gradients are left aside")
    texts.append(
        "the ledger lists every step on these records; other models trained on them add to epsilon"
    )
    return texts


def _bound(settings: Sequence[StepSettings]) -> str:
    if any(s.count_noise is not None for s in settings):
        return "the clip norm of the moment"
    return " or ".join(f"{bound:g}" for bound in dict.fromkeys(s.clip_norm for s in settings))
