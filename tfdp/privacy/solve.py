"""Plans from a budget: any one of noise, steps, batch and epsilon from the other three."""

from __future__ import annotations

from typing import Any

from tfdp.privacy import calibration
from tfdp.privacy.plan import PrivacyPlan
from tfdp.privacy.settings import StepSettings


def solve_plan(
    *,
    num_examples: int,
    delta: float,
    batch_size: int | None = None,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    clip_norm: float = 1.0,
    sampling: str = "poisson",
    accountant: str = "auto",
    adjacency: str | None = None,
) -> PrivacyPlan:
    """A plan from three of batch size, steps, noise multiplier and epsilon.

    The fourth is left out, and becomes the largest batch, the most steps, the least noise or
    the epsilon that fits the other three.

    Raises:
        TypeError: a number is of the wrong kind.
        ValueError: not exactly one is left out, a number is out of range, or nothing fits.
    """
    unknowns: dict[str, Any] = {
        "batch_size": batch_size,
        "steps": steps,
        "noise_multiplier": noise_multiplier,
        "epsilon": epsilon,
    }
    missing = [name for name, value in unknowns.items() if value is None]
    if len(missing) != 1:
        raise ValueError(
            f"leave out exactly one of {', '.join(unknowns)}; "
            f"left out: {', '.join(missing) or 'none'}."
        )
    common: dict[str, Any] = {
        "num_examples": num_examples,
        "clip_norm": clip_norm,
        "sampling": sampling,
        "adjacency": adjacency,
    }
    if missing[0] in ("batch_size", "steps"):
        unknowns[missing[0]] = _largest(missing[0], {**common, **unknowns}, delta, accountant)
        unknowns["epsilon"] = None
    plan = PrivacyPlan(**common, **unknowns, delta=delta, accountant=accountant)
    target = None if epsilon is None else float(epsilon)
    return PrivacyPlan.from_dict({**plan.to_dict(), "target_epsilon": target})


def _largest(wanted: str, known: dict[str, Any], delta: float, accountant: str) -> int:
    """The most steps, or the largest batch, that the budget allows."""
    epsilon = known["epsilon"]
    settings = StepSettings(
        num_examples=known["num_examples"],
        batch_size=1 if wanted == "batch_size" else known["batch_size"],
        noise_multiplier=known["noise_multiplier"],
        clip_norm=known["clip_norm"],
        sampling=known["sampling"],
        adjacency=known["adjacency"] or "",
    )
    if wanted == "batch_size":
        return calibration.batch_size_for_epsilon(
            epsilon, delta, settings, known["steps"], accountant=accountant
        )
    found = calibration.steps_for_epsilon(epsilon, delta, settings, accountant=accountant)
    if not found:
        raise ValueError(f"not even one step keeps to epsilon {epsilon:g}.")
    return found
