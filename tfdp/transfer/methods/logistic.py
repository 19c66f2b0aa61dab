"""The baseline without privacy: logistic regression by L-BFGS."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import optimize

from tfdp import checks
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.method import Method, Problem, Task
from tfdp.transfer.release_budget import Release


@dataclasses.dataclass(frozen=True)
class Logistic(Method):
    """Softmax regression solved to the end, without any privacy.

    Minimizes mean cross-entropy + l2 / 2 |W|^2 over seen rows.

    Attributes:
        l2: Strength of the penalty, for rows of unit norm. None takes 0.15 / N, a Gaussian
            prior of one width: the more rows there are, the less it weighs.
        iterations: At most this many.
    """

    preparation: ClassVar[Preparation] = Preparation(normalize="root", center="private", bias=1.0)

    l2: float | None = None
    iterations: int = 100

    def __post_init__(self) -> None:
        if self.l2 is not None:
            checks.not_negative("l2", self.l2)
        checks.positive_int("iterations", self.iterations)

    def releases(self, task: Task) -> list[Release]:
        """Returns the one exact release, which cannot be private.

        Raises:
            ValueError: The task asks for privacy.
        """
        if task.noise_multiplier:
            raise ValueError(
                "method 'logistic' is the non-private baseline: it needs epsilon=inf. For a "
                "private head choose another method, for instance 'auto'."
            )
        return [Release("exact solution")]

    def fit(self, problem: Problem) -> Head:
        """Runs L-BFGS."""
        sums, n = problem.sums, problem.task.num_examples
        shape = sums.width + 1, sums.num_classes
        l2 = 0.15 / n if self.l2 is None else self.l2

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            weights = flat.reshape(shape)
            loss, kernel, bias = sums.loss(weights[:-1], weights[-1])
            gradient = np.vstack([kernel, bias]) / n
            gradient[:-1] += l2 * weights[:-1]
            penalty = l2 / 2 * np.sum(weights[:-1] ** 2)
            return loss / n + penalty, gradient.ravel().astype(np.float64)

        result = optimize.minimize(
            objective,
            np.zeros(shape[0] * shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.iterations, "maxcor": 20},
        )
        weights = result.x.reshape(shape)
        # Without noise; recorded all the same, so that the report says that there is no privacy.
        (exact,) = problem.spending.release("exact solution", weights, sensitivity=1.0)
        return problem.head(exact[:-1], exact[-1])
