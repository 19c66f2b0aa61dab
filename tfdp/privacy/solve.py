"""Plans from a budget: any one of noise, steps, batch size and epsilon from the other three."""

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
    """Returns a plan from three of batch size, steps, noise multiplier and epsilon.

    The fourth is left out. It becomes the largest batch size, the most steps, the least noise or
    the epsilon that fits the other three.

    Raises:
        TypeError: A number is of the wrong kind.
        ValueError: Not exactly one is left out, a number is out of range, or nothing fits.
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
        "adjacency": adjacency or "",
    }
    if batch_size is None or steps is None:
        settings = StepSettings(
            **common, batch_size=batch_size or 1, noise_multiplier=unknowns["noise_multiplier"]
        )
        unknowns[missing[0]] = _largest(settings, steps, unknowns["epsilon"], delta, accountant)
        unknowns["epsilon"] = None
    plan = PrivacyPlan(**common, **unknowns, delta=delta, accountant=accountant)
    return plan.with_target(None if epsilon is None else float(epsilon))


def _largest(
    settings: StepSettings, steps: int | None, epsilon: float, delta: float, accountant: str
) -> int:
    """Returns the most steps, or with steps given the largest batch size, within the budget."""
    if steps is not None:
        return calibration.batch_size_for_epsilon(
            epsilon, delta, settings, steps, accountant=accountant
        )
    found = calibration.steps_for_epsilon(epsilon, delta, settings, accountant=accountant)
    if not found:
        raise ValueError(f"not even one step keeps to epsilon {epsilon:g}.")
    return found
