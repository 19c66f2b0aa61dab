"""Private least squares onto one-hot targets, in closed form from noisy moments."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfdp import checks
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.method import (
    Method,
    Problem,
    Task,
    check_moments,
    moment_ridge,
    positive,
)
from tfdp.transfer.release_budget import Release


@dataclasses.dataclass(frozen=True)
class LeastSquares(Method):
    """Ridge regression from one noisy second moment and noisy class sums: two releases.

    Solves (G / n + ridge I) w_l = b_l / n for every class l.

    Attributes:
        clip_norm: C, the largest norm of a seen row; None takes their typical norm.
        share: Of the budget that the second moment gets; the class sums get the rest.
        ridge: Added to the diagonal of G / n; None takes the rule of `moment_ridge`.
    """

    clip_norm: float | None = None
    share: float = 0.5
    ridge: float | None = None

    def __post_init__(self) -> None:
        check_moments(self.clip_norm, self.ridge)
        checks.share("share", self.share)

    def releases(self, task: Task) -> list[Release]:
        """Returns second moment and class sums."""
        return [
            Release("second moment", self.share),
            Release("class sums", 1 - self.share),
        ]

    def fit(self, problem: Problem) -> Head:
        """Makes the two releases and solves."""
        clip = self.clip_norm or problem.typical_norm
        moment = problem.moment("second moment", clip)
        sums = problem.class_sums("class sums", clip)
        n, width = problem.task.num_examples, len(moment)
        ridge = moment_ridge(problem, self.ridge, "second moment", width, clip)
        kernel = np.linalg.solve(moment / n + ridge * np.eye(width), sums / n)
        return problem.head(kernel, np.zeros(kernel.shape[1]))


@dataclasses.dataclass(frozen=True)
class ClassLeastSquares(Method):
    """Least squares with a second moment for every class (Mehta, Krichene et al. 2022).

    Solves (A_l + alpha G + ridge n I) w_l = b_l with A_l the second moment of class l alone and
    G that of all examples. Three releases; each example is in G, in its own class's A_l and in its
    own class's b_l, once each, so under adding or removing one the classes spend nothing extra.

    Attributes:
        clip_norm: C, the largest norm of a seen row; None takes their typical norm.
        alpha: Weight of the common second moment.
        ridge: As for `LeastSquares`.
        shares: Of G, of the A_l and of the b_l; they add up to 1.
    """

    clip_norm: float | None = None
    alpha: float = 2.0
    ridge: float | None = None
    shares: tuple[float, float, float] = (0.4, 0.2, 0.4)

    def __post_init__(self) -> None:
        check_moments(self.clip_norm, self.ridge)
        checks.not_negative("alpha", self.alpha)
        checks.shares("shares", self.shares, 3)

    def releases(self, task: Task) -> list[Release]:
        """Returns G, all the A_l, all the b_l."""
        common, own, sums = self.shares
        return [
            Release("second moment", common),
            Release("class second moments", own),
            Release("class sums", sums),
        ]

    def fit(self, problem: Problem) -> Head:
        """Makes the three releases and solves for each class."""
        spending, n = problem.spending, problem.task.num_examples
        clip = self.clip_norm or problem.typical_norm
        common = self.alpha * problem.moment("second moment", clip)
        sums = problem.class_sums("class sums", clip)
        moments = list(problem.sums.class_second_moments(clip))
        own = spending.release("class second moments", *moments, sensitivity=clip**2)
        width = len(common)
        ridge = moment_ridge(problem, self.ridge, "class second moments", width, clip)
        common += ridge * n * np.eye(width)
        kernel = [
            np.linalg.solve(positive(matrix) + common, column)
            for matrix, column in zip(own, sums.T, strict=True)
        ]
        return problem.head(np.stack(kernel, axis=1), np.zeros(len(kernel)))
