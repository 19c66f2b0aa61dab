"""Fits of a study's candidates, and the choice among them on held-out examples."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from tfdp.privacy import PrivacyPlan, PrivacyReport, Segment, StepSettings, epsilon
from tfdp.transfer.fine_tuning import SampledHead, fit_sampled
from tfdp.transfer.last_layer import LastLayer
from tfdp.transfer.release_budget import key_from, seed_for
from tfdp.transfer.studies.candidates import Budget, Candidate, check_charge
from tfdp.transfer.studies.held_out import Examples, public_size, split

_Examples = TypeVar("_Examples", bound=Examples)


class Fitted(Protocol):
    """A fitted classifier: a `LastLayer` or a `TrainedClassifier`."""

    plan: PrivacyPlan

    def evaluate(self, features: Any, /) -> dict[str, float]:
        """Returns accuracy and loss."""

    def privacy_report(self) -> PrivacyReport:
        """Returns the guarantee."""

    def export(self, path: Any, *, class_names: Sequence[str], report: PrivacyReport) -> Any:
        """Writes a SavedModel with the report inside."""


def _segments(plans: Sequence[PrivacyPlan]) -> list[Segment]:
    """Returns all steps of the plans, those under the same settings together."""
    steps: Counter[StepSettings] = Counter()
    for plan in plans:
        steps[plan.settings] += plan.steps
    return [Segment(settings, count) for settings, count in steps.items()]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The result of tuning.

    Attributes:
        settings: The best choice of the grid.
        plans: Of the private runs that were made to find it.
        charged: Whether they share the budget of a final run.
        judging: If they do, what judging all of them spent of the held-out examples' budget.
    """

    settings: dict[str, Any]
    plans: tuple[PrivacyPlan, ...] = ()
    charged: bool = False
    judging: PrivacyPlan | None = None

    @property
    def runs(self) -> int:
        """How many private runs were made to find it."""
        return len(self.plans)

    @property
    def share_of_runs(self) -> int:
        """The runs that share the budget: the final one, and charged ones."""
        return 1 + (self.runs if self.charged else 0)

    def epsilon_with(self, final: PrivacyPlan) -> float:
        """Returns epsilon of the trial runs and the final run together, charged or not.

        A charged choice spends the budget of the examples that it is made by, on which no run
        trains.
        """
        if not final.noise_multiplier:
            return math.inf
        trained = epsilon(_segments([*self.plans, final]), final.delta or 0.0).epsilon
        return max(trained, self.judging.epsilon if self.judging else 0.0)

    @property
    def spent(self) -> list[Segment]:
        """All steps of the trial runs, for sums with those of other runs.

        Under charged tuning an example is trained on or judged by, never both. Full-batch runs
        spend at least as much as judging does, which then needs no count of its own. Sampled
        runs compose differently as soon as more is added, so both are counted.
        """
        plans = list(self.plans)
        if self.judging is not None and plans[0].settings.sampling != "full_batch":
            plans.append(self.judging)
        return _segments(plans)


def fit(
    candidate: Candidate,
    choice: Mapping[str, Any],
    data: Any,
    budget: Budget,
    *,
    runs: int = 1,
    seed: int | None = None,
    purpose: str = "run",
) -> tuple[Fitted, float]:
    """Fits one classifier.

    Under one seed every method, setting, budget and purpose has noise of its own, so that the
    guarantee of several fits together is what it is stated to be.

    Args:
        candidate: The method.
        choice: Of its grid.
        data: `FeatureTable` or `Pictures` to train on; about as many as the budget says.
        budget: Of all runs.
        runs: How many runs on the same examples share the budget.
        seed: Of the noise, for studies; None for a head that is released.
        purpose: Of this fit, where others have the same settings, budget and seed.

    Returns:
        The fitted classifier and the seconds that fitting took.
    """
    method, preparation = candidate.make(choice)
    seed = seed_for(seed, purpose)
    if isinstance(method, SampledHead):
        return fit_sampled(method, data, runs=runs, seed=seed, **dataclasses.asdict(budget))
    head = LastLayer(
        budget.num_classes,
        num_examples=budget.num_examples,
        delta=budget.delta,
        noise_multiplier=budget.noise_multiplier(runs),
        adjacency=budget.adjacency,
        method=method,
        preparation=preparation,
        seed=seed,
    )
    begun = time.perf_counter()
    head.fit(data)
    return head, time.perf_counter() - begun


def tune(
    candidate: Candidate,
    data: _Examples,
    budget: Budget,
    *,
    held_out: float = 0.1,
    charge: bool = False,
    seed: int | None = None,
) -> tuple[Chosen, _Examples, Budget]:
    """Chooses from the grid by accuracy on examples that the trial runs do not train on.

    Without `charge` the choice is not counted, which is customary and not private; the final
    run then has all examples and the whole budget. With it, trial runs and final run share the
    budget and the examples that are not held out, and the numbers of right answers on the held-out
    examples are released with noise of that budget's size. Which part an example is in does not
    depend on the others (see `held_out`), so the two do not add up.

    Args:
        candidate: The method and its grid.
        data: All examples to train on.
        budget: Of everything that is charged.
        held_out: The part of the examples to judge by, between 0 and 1.
        charge: Whether tuning is charged to the budget.
        seed: Of the noise; every trial run, and the judging, has noise of its own under it.
            Whoever knows the seed can remove all of it: omit it for what is released.

    Returns:
        The choice; the examples for the final run; and the budget with their public number.

    Raises:
        ValueError: Runs of different schedules would have to share one budget.
    """
    choices = candidate.choices()
    if len(choices) == 1:
        return Chosen(choices[0]), data, budget
    if charge:
        check_charge(candidate)
    train, judges = split(data, held_out, budget.adjacency)
    own = dataclasses.replace(
        budget, num_examples=public_size(budget.num_examples, held_out, budget.adjacency)
    )
    runs = len(choices) + 1 if charge else 1
    right, plans = np.empty(len(choices)), []
    for number, choice in enumerate(choices):
        purpose = f"trial {number}"
        head, _ = fit(candidate, choice, train, own, runs=runs, seed=seed, purpose=purpose)
        right[number] = head.evaluate(judges)["accuracy"] * len(judges)
        plans.append(head.plan)
    if charge:
        # One example more or less changes each of these counts by at most 1.
        right += _judging_noise(candidate, budget, len(choices), seed)
    best = choices[int(np.argmax(right))]
    chosen = Chosen(best, tuple(plans), charge, budget.whole() if charge else None)
    return (chosen, train, own) if charge else (chosen, data, budget)


def _judging_noise(
    candidate: Candidate, budget: Budget, count: int, seed: int | None
) -> np.ndarray:
    """Returns the noise on the numbers of right answers of `count` trial runs, `[count]`."""
    key = key_from(seed_for(seed, "judging", candidate, budget))
    draw = key.child("tuning").seeds(0, 1)[0]
    noise = tf.random.stateless_normal([count], draw, dtype=tf.float64).numpy()
    return noise * budget.noise_multiplier(count)
