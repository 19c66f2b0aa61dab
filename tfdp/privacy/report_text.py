"""The words of the privacy report: whom a guarantee protects, from whom, and what it assumes.

Each sentence is written once, here, for the report in JSON, as text and as a page. `{unit}` is
what is protected: an example, or a user with all their examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfdp.privacy import interpretation
from tfdp.privacy.settings import StepSettings

NOISE_CONVENTION = (
    "standard deviation on the clipped sum = noise_multiplier * clip_norm; the noisy sum is then "
    "divided by expected_batch_size"
)
ADAPTIVE_NOISE_CONVENTION = (
    "noise_multiplier covers the sum and the count of unclipped examples together; standard "
    "deviation on the clipped sum = gradient_noise_multiplier * the current clip norm, which "
    "starts at clip_norm; the noisy sum is then divided by expected_batch_size"
)
NOISE_MECHANISM = {
    False: "Gaussian, drawn in floating point",
    True: (
        "discrete Gaussian, drawn exactly, in integers on a grid: the step of the grid is the "
        "largest power of two with step * sqrt(weights) <= clip_norm / 2^14, and rounding to it is "
        "accounted for as 2^-14 more sensitivity"
    ),
}
CHANGED_NOTE = (
    "some steps ran under other settings than the plan's; epsilon counts them all, and their "
    "settings are listed under segments"
)
SEED_NOTE = (
    "a fixed seed was used: whoever knows the seed can remove the noise, so this run is a test and "
    "has no guarantee against them; releases that share a seed share their noise, so their "
    "difference has none, and composition does not hold for them"
)
_ADJACENCY = {
    "add_or_remove_one": "datasets that differ by the presence of one {unit}",
    "zero_out": "datasets in which one {unit} is, or is not, blanked out",
    "replace_one": "datasets in which one {unit} is replaced by another",
}
_SAMPLING = {
    "poisson": "Poisson, each {unit} included independently with probability q",
    "full_batch": "full batch, every {unit} in every step",
    "fixed_size": "fixed size, without replacement, anew each step",
    "none": "passes in an order that is not verified: no amplification",
    "arbitrary": "unknown, any {unit} in any step: no amplification",
}
_SAMPLING_ASSUMED = {
    "poisson": (
        "each {unit} was included in each step independently with probability q, unknown to the "
        "attacker"
    ),
    "full_batch": "every {unit} took part in every step",
    "fixed_size": "each step drew its {unit}s anew, uniformly, unknown to the attacker",
    "none": "each {unit} was used at most once in a pass over the data",
    "arbitrary": "nothing is assumed about the order in which {unit}s were used",
}
_ATTACKER = (
    "anyone who sees the weights after any step, and knows the program and all other {unit}s, with "
    "any method, but not the key (computationally bounded: the noise comes from a 128-bit key)"
)
_COVERED = (
    "every weight and optimizer state of the model, at every step and in every checkpoint, and "
    "anything computed from them alone",
)
_NOT_COVERED = (
    "exact counts of private examples (used, skipped or unreadable) in checkpoints, logs and "
    "reports: they are for those who hold the data",
    "figures computed from the private examples themselves: training loss and metrics, gradient "
    "norms, logs",
    "choices made by looking at private results, such as hyperparameters tuned on other runs",
    "a vocabulary, statistics or initial weights that were not public",
)


def unit(examples_per_user: int | None) -> str:
    """Returns the word for what is protected."""
    return "example" if examples_per_user is None else "user"


def protected(examples_per_user: int | None, name: str = "") -> str:
    """Returns what is protected.

    Args:
        examples_per_user: Of the settings.
        name: What such an example or user is in these data.
    """
    words = "one example"
    if examples_per_user is not None:
        used = f"at most {examples_per_user} of them" if examples_per_user > 1 else "one of them"
        words = f"one user: all examples with one user id, {used} used in a step"
    return f"{words} ({name})" if name else words


def covered(epsilon: float) -> list[str]:
    """Returns what the guarantee covers: nothing where epsilon is infinite."""
    return [] if math.isinf(epsilon) else list(_COVERED)


def not_covered(examples_per_user: int | None) -> list[str]:
    """Returns what the guarantee does not cover."""
    several = "examples" if examples_per_user is None else "user ids, and groups of people"
    return [*_NOT_COVERED, f"people with several {several}: see epsilon_of_groups"]


def assumptions(settings: Sequence[StepSettings], epsilon: float) -> list[str]:
    """Returns what must be true for the figure to hold; nothing where it promises nothing.

    Args:
        settings: Those of the steps, one at least.
        epsilon: The figure.
    """
    return [] if math.isinf(epsilon) else list(_assumptions(settings))


def _assumptions(settings: Sequence[StepSettings]) -> Iterator[str]:
    one = unit(settings[-1].examples_per_user)
    sizes = " and ".join(f"{size:,}" for size in sorted({s.num_examples for s in settings}))
    yield f"the number of {one}s, {sizes}, is public"
    for sampling in dict.fromkeys(s.sampling for s in settings):
        yield f"sampling: {_SAMPLING_ASSUMED[sampling].format(unit=one)}"
    norms = " or ".join(f"{norm:g}" for norm in dict.fromkeys(s.clip_norm for s in settings))
    if any(s.count_noise is not None for s in settings):
        norms = "the current clip norm"
    yield f"no {one} adds more than {norms} to the sum of gradients"
    if one == "user":
        yield "all examples of a user have the same user id"
    yield (
        "the noise is as described, and its 128-bit key is secret: nobody knows it, and nobody can "
        "distinguish the numbers drawn from it from true randomness"
    )
    if not all(s.secure for s in settings):
        yield "attacks on the rounding of floating-point noise are not considered"
    yield "attacks on the rounding of floating-point sums of gradients are not considered"
    yield (
        "the ledger lists every step on these examples; other models trained on them add to epsilon"
    )


def phrases(v: Mapping[str, Any]) -> dict[str, str]:
    """Returns the sentences of a report in text or as a page, by name.

    Args:
        v: The values of a `PrivacyReport`.
    """
    one = unit(v["examples_per_user"])
    no_guarantee = math.isinf(v["epsilon"])
    belonging = "examples of one person" if one == "example" else "users who belong together"
    return {
        "unit": one,
        "meaning": interpretation.meaning(v["epsilon"], v["delta"], one),
        "adjacency": _ADJACENCY[v["adjacency"]].format(unit=one),
        "against": "nobody: epsilon is infinite" if no_guarantee else _ATTACKER.format(unit=one),
        "sampling": _SAMPLING[v["sampling"]].format(unit=one),
        "clipping": _clipping(v, one),
        "covered": "; ".join(v["covered"]) or "nothing: epsilon is infinite",
        "group": belonging,
    }


def _clipping(v: Mapping[str, Any], one: str) -> str:
    """Returns how examples are clipped, and what bounds each one's contribution."""
    how, norm = v["clipping"], f"{v['clip_norm']:g}"
    if how["kind"] == "automatic":
        return f"automatic, {norm} / (norm + {how['gamma']:g}): no contribution exceeds {norm}"
    if how["kind"] == "per_layer":
        layers = ", ".join(f"{path} {c:g}" for path, c in how["bounds"].items())
        return (
            f"each layer by itself ({layers or 'equal clip norms'}): the root of the sum of "
            f"squares is {norm}"
        )
    if how["kind"] == "quantile":
        return (
            f"the clip norm starts at {norm} and follows the {how['quantile']:g} quantile of the "
            f"norms, through a count with noise of standard deviation "
            f"{v['count_noise_standard_deviation']:.5g}; the noise multiplier includes it, "
            f"and the noise on the sum is {v['gradient_noise_multiplier']:.5g} clip norms"
        )
    return f"over all weights jointly: no {one}'s contribution has a norm above {norm}"


def summary_text(v: Mapping[str, Any]) -> str:
    """Returns the guarantee in a few lines, for the end of a run.

    Args:
        v: The values of a `PrivacyReport`.
    """
    lines = [f"Privacy: (epsilon, delta) = ({v['epsilon']:.4g}, {v['delta']:.3g})"]
    return "\n".join(lines + [f"  {name:<12}{text}" for name, text in _rows(v)])


def _rows(v: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    said, attack = phrases(v), v["attacker_true_positive_rate"]
    yield "means", said["meaning"]
    yield "protects", f"{v['unit']}; {said['adjacency']}"
    yield "against", said["against"]
    yield "accountant", _accountants(v)
    q = f"{v['expected_batch_size']}/{v['num_examples']} = {v['sampling_probability']:.4g}"
    yield "sampling", f"{said['sampling']}; q = {q}"
    used = f"each {said['unit']} used {v['expected_epochs']:.3g} times on average"
    if v["expected_coverage"] is not None:
        used += f", {v['expected_coverage']:.2%} of them at least once"
    yield "steps", f"{v['steps']} of {v['planned_steps']} planned; {used}"
    yield "clipping", said["clipping"]
    yield (
        "noise",
        f"multiplier {v['noise_multiplier']:.5g}, clip norm {v['clip_norm']:g}: standard deviation "
        f"{v['noise_standard_deviation']:.5g} on the clipped sum; {v['noise_mechanism']}",
    )
    yield (
        "attacker",
        f"identifies at most {attack['0.01']:.2%} of the examples used at 1% false positives, "
        f"{attack['0.001']:.2%} at 0.1%",
    )
    groups = [f"{size}: {epsilon:.4g}" for size, epsilon in v["epsilon_of_groups"].items()]
    yield "groups", f"epsilon for {said['group']} is at most {', '.join(groups) or 'unknown'}"
    yield "covered", said["covered"]
    yield "not covered", "; ".join(v["not_covered"])
    for text in v["assumptions"]:
        yield "assumed", text
    if v["public_data"]:
        yield "public data", f"{'; '.join(v['public_data'])}: spends no privacy"
    for note in v["notes"]:
        yield "note", note


def _accountants(v: Mapping[str, Any]) -> str:
    others = {"RDP": v["epsilon_rdp"], "PLD": v["epsilon_pld"], "Gaussian": v["epsilon_gaussian"]}
    figures = [f"{name} {value:.4g}" for name, value in others.items() if value is not None]
    figures.append(f"without amplification {v['epsilon_without_amplification']:.4g}")
    return f"{v['accountant']}; {', '.join(figures)}"
