"""What would stop a study late, said before it begins: no row is summed, nothing is spent."""

from __future__ import annotations

from typing import Any

from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.transfer.budget import check_count, shared
from tfdp.transfer.methods import Method, Task
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.sampled import FineTune, SampledHead
from tfdp.transfer.settings import make_method, make_preparation
from tfdp.transfer.spending import Spending
from tfdp.transfer.study import Budget, Candidate, check_charge


def check_candidate(
    candidate: Candidate, budget: Budget, rows: Any, *, charge: bool = False
) -> None:
    """Refuses a method, a choice of its grid or a budget that could not be run on these rows.

    Args:
        candidate: the method and its grid.
        budget: of everything.
        rows: `Rows` or `Pictures` to train on.
        charge: whether tuning is to be paid for.

    Raises:
        TypeError, ValueError: the message says what and why.
    """
    budget.whole()
    check_count(len(rows), budget.num_examples)
    if charge:
        check_charge(candidate)
    for number, choice in enumerate(candidate.choices()):
        method = make_method(candidate.method, {**candidate.settings, **choice})
        preparation = make_preparation(method, candidate.preparation)
        if not isinstance(method, SampledHead):
            _check_releases(method, preparation, budget, rows)
            continue
        method.check_rows(rows)
        PrivacyPlan(
            num_examples=budget.num_examples,
            delta=budget.delta,
            adjacency=budget.adjacency,
            noise_multiplier=1.0,
            **method.schedule(budget.num_examples),
        )
        if number == 0 and isinstance(method, FineTune):
            method.model(rows, budget.num_classes, None)  # the backbone has what is to be trained


def _check_releases(
    method: Method, preparation: Preparation | None, budget: Budget, rows: Any
) -> None:
    """Everything that would be published has its place in the budget."""
    plan = budget.whole()
    task = Task(budget.num_examples, budget.num_classes, rows.dim, plan.noise_multiplier)
    settled = method.settled(task)
    preparation = preparation or settled.preparation
    if preparation.needs_public:
        raise ValueError(
            "a study has no public features: it cannot centre by them, or project on their "
            "components. Use LastLayer(public_features=...) for that."
        )
    Spending(plan, shared(preparation, settled, task), NoiseKey.from_entropy())
