"""What a study tries: methods from plain settings, and the budget that each run may spend."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoiseKey
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.fine_tuning import SAMPLED, FineTune, SampledHead, plan_for
from tfdp.transfer.last_layer import check_count
from tfdp.transfer.methods.auto import METHODS
from tfdp.transfer.methods.method import Method, Task, shared_releases
from tfdp.transfer.release_budget import Spending, whole_budget

_Settings = TypeVar("_Settings")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method with settings, and settings to choose among.

    Attributes:
        method: A name in `METHODS` or `SAMPLED`.
        settings: Of the method, by (dotted) name.
        preparation: Settings that differ from the method's own preparation.
        grid: By (dotted) name of a method's setting, the values to try.

    Raises:
        TypeError, ValueError: The grid names no values for a setting.
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
                raise ValueError(f"grid: {name} has no values to try; name some, or omit it.")

    def choices(self) -> list[dict[str, Any]]:
        """Returns every combination of the grid's values; one empty choice without a grid."""
        names = list(self.grid)
        return [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]

    def make(self, choice: Mapping[str, Any]) -> tuple[Method | SampledHead, Preparation | None]:
        """Returns the method with the settings of a choice, and its preparation if it differs.

        Raises:
            ValueError: There is no such method or setting.
        """
        method = make_method(self.method, {**self.settings, **choice})
        if not self.preparation:
            return method, None
        if isinstance(method, SampledHead):
            raise ValueError("training on sampled batches has no preparation of features.")
        return method, changed(method.preparation, self.preparation, "preparation")


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every run of a study may spend.

    Attributes:
        num_examples: N, public.
        num_classes: K, public.
        epsilon: Of one run, or infinity.
        delta: Of one run.
        adjacency: As for `LastLayer`.
    """

    num_examples: int
    num_classes: int
    epsilon: float
    delta: float
    adjacency: str = "add_or_remove_one"

    def whole(self) -> PrivacyPlan:
        """Returns all of it as one release that uses every example once."""
        return whole_budget(self.num_examples, self.epsilon, self.delta, None, self.adjacency)

    def noise_multiplier(self, runs: int = 1) -> float:
        """Returns the noise of each of `runs` runs on the same examples that share the budget."""
        return self.whole().noise_multiplier * math.sqrt(runs)


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method | SampledHead:
    """Returns a method by name, with some of its settings changed.

    Args:
        name: One of `METHODS`, or of `SAMPLED` for training on sampled batches.
        settings: By name; those of a part of the method by a dotted one ("loop.steps") or as a
            mapping of their own.

    Raises:
        ValueError: There is no such method or setting.
    """
    known: dict[str, Any] = {**METHODS, **SAMPLED}
    if name not in known:
        raise ValueError(f"method must be one of {', '.join(known)}, got {name!r}.")
    return changed(known[name](), settings or {}, f"method {name!r}")


def changed(thing: _Settings, settings: Mapping[str, Any], what: str) -> _Settings:
    """Returns a dataclass with some fields replaced, and fields of its fields."""
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    known = [field.name for field in dataclasses.fields(thing)]  # type: ignore[arg-type]
    for key, value in settings.items():
        name, _, rest = key.partition(".")
        if name not in known:
            raise ValueError(
                f"{what} has no setting {name!r}; it has {', '.join(known) or 'none'}."
            )
        if rest:
            nested.setdefault(name, {})[rest] = value
        elif isinstance(value, Mapping):
            nested.setdefault(name, {}).update(value)
        else:
            own[name] = tuple(value) if isinstance(value, list) else value
    for name, inner in nested.items():
        own[name] = changed(getattr(thing, name), inner, f"{what}, {name}")
    return dataclasses.replace(thing, **own)  # type: ignore[type-var]


def dotted(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Maps {"loop": {"steps": 3}} to {"loop.steps": 3}, for mappings of any depth."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": v for inner, v in dotted(value).items()}
        else:
            flat[name] = value
    return flat


def check_candidate(
    candidate: Candidate, budget: Budget, data: Any, *, charge: bool = False
) -> None:
    """Rejects what would stop a study late, before anything is summed or spent.

    Args:
        candidate: The method and its grid.
        budget: Of every run.
        data: `FeatureTable` or `Pictures` to train on.
        charge: Whether tuning is charged to the budget.

    Raises:
        TypeError, ValueError: A method, a choice of its grid or the budget cannot be run on these
            examples; the message says what and why.
    """
    budget.whole()
    check_count(len(data), budget.num_examples)
    if charge:
        check_charge(candidate)
    for number, choice in enumerate(candidate.choices()):
        method, preparation = candidate.make(choice)
        if not isinstance(method, SampledHead):
            _check_releases(method, preparation, budget, data.dim)
            continue
        method.check_data(data)
        plan_for(method, budget.num_examples, math.inf, budget.delta, budget.adjacency)
        if number == 0 and isinstance(method, FineTune):
            method.model(data, budget.num_classes, None)  # the backbone has what is to be trained


def check_charge(candidate: Candidate) -> None:
    """Rejects grids whose trial runs cannot share a budget.

    Raises:
        ValueError: Runs of different schedules would have to share one.
    """
    if {"batch_size", "epochs"} & candidate.grid.keys():
        raise ValueError(
            "charged tuning shares the budget among runs of the same schedule: take batch_size "
            "and epochs out of the grid, or leave tuning uncharged."
        )


def _check_releases(
    method: Method, preparation: Preparation | None, budget: Budget, dim: int
) -> None:
    """Checks that everything that would be released has its place in the budget."""
    plan = budget.whole()
    task = Task(budget.num_examples, budget.num_classes, dim, plan.noise_multiplier)
    settled = method.settled(task)
    preparation = preparation or settled.preparation
    if preparation.needs_public:
        raise ValueError(
            "a study has no public features: it cannot center by them, or project on their "
            "components. Use LastLayer(public_features=...) for that."
        )
    Spending(plan, shared_releases(preparation, settled, task), NoiseKey.from_entropy())
