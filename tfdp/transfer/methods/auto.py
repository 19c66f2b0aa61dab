"""Methods by name, and the default: one picked from the noise by a rule."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.class_means import ClassMeans
from tfdp.transfer.methods.feature_covariance import FeatureCovariance, Newton
from tfdp.transfer.methods.full_batch_steps import FullBatch, OneStep
from tfdp.transfer.methods.least_squares import ClassLeastSquares, LeastSquares
from tfdp.transfer.methods.logistic import Logistic
from tfdp.transfer.methods.method import Method, Problem, Task
from tfdp.transfer.methods.whitened import Whitened
from tfdp.transfer.release_budget import Release


@dataclasses.dataclass(frozen=True)
class Auto(Method):
    """Picks a method from public numbers alone.

    Without noise it is logistic regression, solved to the end. With noise it is `Whitened`,
    whose own rules set its ridge and its step lengths.
    """

    preparation: ClassVar[Preparation] = Preparation()

    def settled(self, task: Task) -> Method:
        """Returns the method that the rule gives."""
        return Whitened() if task.noise_multiplier else Logistic()

    def releases(self, task: Task) -> list[Release]:
        """Returns those of the method picked."""
        return self.settled(task).releases(task)

    def fit(self, problem: Problem) -> Head:
        """Fits the method picked."""
        return self.settled(problem.task).fit(problem)


#: Methods with their default settings, by the names that configs use.
METHODS: dict[str, type[Method]] = {
    "auto": Auto,
    "one_step": OneStep,
    "full_batch": FullBatch,
    "least_squares": LeastSquares,
    "class_least_squares": ClassLeastSquares,
    "feature_covariance": FeatureCovariance,
    "newton": Newton,
    "class_means": ClassMeans,
    "whitened": Whitened,
    "logistic": Logistic,
}


def named_method(method: str | Method) -> Method:
    """Returns the method itself, or the one of that name with its default settings.

    Raises:
        ValueError: There is no such method.
    """
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    return METHODS[method]()
