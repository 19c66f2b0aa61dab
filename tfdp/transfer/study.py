"""Runs of many methods, budgets and seeds on the same features, and the tuning before them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from tfdp.privacy import PrivacyPlan, PrivacyReport, Segment, StepSettings, epsilon
from tfdp.privacy.noise import NoiseKey
from tfdp.transfer.budget import whole_budget
from tfdp.transfer.held_out import Records, public_size, split_rows
from tfdp.transfer.last_layer import LastLayer
from tfdp.transfer.sampled import SampledHead, fit_sampled
from tfdp.transfer.seeds import child_seed
from tfdp.transfer.settings import make_method, make_preparation

_Records = TypeVar("_Records", bound=Records)


class Fitted(Protocol):
    """A fitted classifier: a `LastLayer` or a `TrainedClassifier`."""

    plan: PrivacyPlan

    def evaluate(self, rows: Any) -> dict[str, float]:
        """Accuracy and loss."""

    def privacy_report(self) -> PrivacyReport:
        """The guarantee."""

    def export(self, path: Any, *, class_names: Sequence[str], report: PrivacyReport) -> Any:
        """Writes a SavedModel with the report inside."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method with settings, and settings to choose among.

    Attributes:
        method: a name in `METHODS` or `SAMPLED`.
        settings: of the method, by (dotted) name.
        preparation: settings that differ from the method's own preparation.
        grid: by (dotted) name of a method's setting, the values to try.

    Raises:
        TypeError, ValueError: the grid names no values for a setting.
    """

    method: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    preparation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(f"grid: {name} must be a list of values to try, got {values!r}.")
            if not values:
                raise ValueError(f"grid: {name} has no values to try; name some, or leave it out.")

    def choices(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values; one empty choice without a grid."""
        names = list(self.grid)
        return [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every run of a study may spend.

    Attributes:
        num_examples: N, public.
        num_classes: K, public.
        epsilon: of one run, or infinity.
        delta: of one run.
        adjacency: as for `LastLayer`.
    """

    num_examples: int
    num_classes: int
    epsilon: float
    delta: float
    adjacency: str = "add_or_remove_one"

    def whole(self) -> PrivacyPlan:
        """All of it as one release that uses every row once."""
        return whole_budget(self.num_examples, self.epsilon, self.delta, None, self.adjacency)

    def noise_multiplier(self, runs: int = 1) -> float:
        """The noise of each of `runs` runs on the same rows that together cost the budget."""
        return self.whole().noise_multiplier * math.sqrt(runs)


def _segments(plans: Sequence[PrivacyPlan]) -> list[Segment]:
    """All steps of the plans, those under the same settings together."""
    steps: Counter[StepSettings] = Counter()
    for plan in plans:
        steps[plan.settings] += plan.steps
    return [Segment(settings, count) for settings, count in steps.items()]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What tuning came to.

    Attributes:
        settings: the best choice of the grid.
        plans: of the private runs that were made to find it.
        charged: whether the budget of a final run pays for them.
        judging: where it does, what the held-out rows paid for judging all of them.
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
        """What the trial runs and the final run cost together, charged or not.

        A charged choice costs the records that it is made by, which no run trains on.
        """
        if not final.noise_multiplier:
            return math.inf
        trained = epsilon(_segments([*self.plans, final]), final.delta or 0.0).epsilon
        return max(trained, self.judging.epsilon if self.judging else 0.0)

    @property
    def spent(self) -> list[Segment]:
        """All steps of the trial runs, for sums with those of other runs.

        Under charged tuning a row was trained on or judged by, never both. Full-batch runs cost
        the one no less than judging costs the other, which then needs no count of its own.
        Sampled ones cost something else as soon as more is added, and both are counted.
        """
        plans = list(self.plans)
        if self.judging is not None and plans[0].settings.sampling != "full_batch":
            plans.append(self.judging)
        return _segments(plans)


def fit(
    candidate: Candidate,
    choice: Mapping[str, Any],
    rows: Any,
    budget: Budget,
    *,
    runs: int = 1,
    seed: int | None = None,
    purpose: str = "run",
    strategy: tf.distribute.Strategy | None = None,
) -> tuple[Fitted, float]:
    """Fits one classifier.

    Under one seed every method, setting, budget and purpose has noise of its own, so that what
    several fits publish together costs what it is said to cost.

    Args:
        candidate: the method.
        choice: of its grid.
        rows: `Rows` or `Pictures` to train on; how many the budget says, near enough.
        budget: of everything.
        runs: among how many runs on the same rows the budget is shared.
        seed: of the noise, for studies; None for a head that is published.
        purpose: of this fit, where others have the same settings, budget and seed.
        strategy: where to compute; the current one when None.

    Returns:
        The fitted classifier and the seconds that fitting took.
    """
    method = make_method(candidate.method, {**candidate.settings, **choice})
    preparation = make_preparation(method, candidate.preparation)
    seed = child_seed(seed, purpose)
    if isinstance(method, SampledHead):
        return fit_sampled(method, rows, runs=runs, seed=seed, **dataclasses.asdict(budget))
    head = LastLayer(
        budget.num_classes,
        num_examples=budget.num_examples,
        delta=budget.delta,
        noise_multiplier=budget.noise_multiplier(runs),
        adjacency=budget.adjacency,
        method=method,
        preparation=preparation,
        seed=seed,
        strategy=strategy,
    )
    begun = time.perf_counter()
    head.fit(rows)
    return head, time.perf_counter() - begun


def tune(
    candidate: Candidate,
    rows: _Records,
    budget: Budget,
    *,
    held_out: float = 0.1,
    charge: bool = False,
    seed: int | None = None,
) -> tuple[Chosen, _Records, Budget]:
    """Chooses from the grid by accuracy on rows that the trial runs do not train on.

    Without `charge` the choice is free of charge, which is customary and not private; the final
    run then has all rows and the whole budget. With it, trial runs and final run share the rows
    that are not held out, and the budget; and the numbers of right answers on the held-out rows
    are published with noise of that budget's size. A row is in one of the parts, whichever other
    rows there are (see `held_out`), so the two costs do not add up.

    Args:
        candidate: the method and its grid.
        rows: all rows to train on.
        budget: of everything that is charged.
        held_out: share of the rows to judge by.
        charge: whether tuning is paid for.
        seed: of the noise; every trial run, and the judging, has noise of its own under it.
            Whoever knows the seed can take all of it off: leave it out for what is published.

    Returns:
        The choice; the rows for the final run; and the budget with their public number.

    Raises:
        ValueError: runs of different schedules are to share one budget.
    """
    choices = candidate.choices()
    if len(choices) == 1:
        return Chosen(choices[0]), rows, budget
    if charge:
        check_charge(candidate)
    train, judges = split_rows(rows, held_out, budget.adjacency)
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
        # One row more or less changes each of these counts by at most 1.
        right += _judging_noise(candidate, budget, len(choices), seed)
    best = choices[int(np.argmax(right))]
    chosen = Chosen(best, tuple(plans), charge, budget.whole() if charge else None)
    return (chosen, train, own) if charge else (chosen, rows, budget)


def check_charge(candidate: Candidate) -> None:
    """Refuses grids whose trial runs cannot share a budget.

    Raises:
        ValueError: runs of different schedules are to share one.
    """
    if {"batch_size", "epochs"} & candidate.grid.keys():
        raise ValueError(
            "charged tuning shares the budget among runs of the same schedule: take batch_size "
            "and epochs out of the grid, or leave tuning uncharged."
        )


def _judging_noise(
    candidate: Candidate, budget: Budget, count: int, seed: int | None
) -> np.ndarray:
    """What the numbers of right answers of `count` trial runs are published with, `[count]`."""
    own = child_seed(seed, "judging", candidate, budget)
    key = NoiseKey.from_entropy() if own is None else NoiseKey.from_seed(own)
    draw = key.child("tuning").seeds(0, 1)[0]
    noise = tf.random.stateless_normal([count], draw, dtype=tf.float64).numpy()
    return noise * budget.noise_multiplier(count)
