"""Private least squares onto one-hot targets, in closed form from noisy moments."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from tfdp import checks
from tfdp.transfer.head import Head
from tfdp.transfer.methods.base import Method, Problem, Task, positive
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.spending import Release


@dataclasses.dataclass(frozen=True)
class LeastSquares(Method):
    """Ridge regression from one noisy second moment and noisy class sums: two releases.

    Solves (G / n + ridge I) w_l = b_l / n for every class l.

    Attributes:
        clip_norm: C, bound on the norm of a seen row; None takes their typical norm.
        share: of the budget that the second moment gets; the class sums get the rest.
        ridge: added to the diagonal of G / n; None takes a rule of noise, n and D alone: the
            size of the noise in G / n (its spectral norm is about sqrt(2 D) standard deviations),
            and at least a thousandth of the mean eigenvalue C^2 / D.
    """

    preparation: ClassVar[Preparation] = Preparation(normalise="root", centre="private")

    clip_norm: float | None = None
    share: float = 0.5
    ridge: float | None = None

    def __post_init__(self) -> None:
        check_moments(self.clip_norm, self.ridge)
        checks.share("share", self.share)

    def releases(self, task: Task) -> list[Release]:
        """Second moment and class sums."""
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
        ridge = self.ridge
        if ridge is None:
            ridge = moment_ridge(problem, "second moment", width, clip)
        kernel = np.linalg.solve(moment / n + ridge * np.eye(width), sums / n)
        return problem.head(kernel, np.zeros(kernel.shape[1]))


@dataclasses.dataclass(frozen=True)
class ClassLeastSquares(Method):
    """Least squares with a second moment for every class (Mehta, Krichene et al. 2022).

    Solves (A_l + alpha G + ridge n I) w_l = b_l with A_l the second moment of class l alone and
    G that of all rows. Three releases; each row is in G, in its own class's A_l and in its own
    class's b_l, once each, so under adding or removing a row the classes cost nothing extra.

    Attributes:
        clip_norm: C, bound on the norm of a seen row; None takes their typical norm.
        alpha: weight of the common second moment.
        ridge: as for `LeastSquares`.
        shares: of G, of the A_l and of the b_l; they add up to 1.
    """

    preparation: ClassVar[Preparation] = Preparation(normalise="root", centre="private")

    clip_norm: float | None = None
    alpha: float = 2.0
    ridge: float | None = None
    shares: tuple[float, float, float] = (0.4, 0.2, 0.4)

    def __post_init__(self) -> None:
        check_moments(self.clip_norm, self.ridge)
        checks.not_negative("alpha", self.alpha)
        checks.shares("shares", self.shares, 3)

    def releases(self, task: Task) -> list[Release]:
        """G, all the A_l, all the b_l."""
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
        own = spending.publish("class second moments", *moments, sensitivity=clip**2)
        width = len(common)
        ridge = self.ridge
        if ridge is None:
            ridge = moment_ridge(problem, "class second moments", width, clip)
        common += ridge * n * np.eye(width)
        kernel = [
            np.linalg.solve(positive(matrix) + common, column)
            for matrix, column in zip(own, sums.T, strict=True)
        ]
        return problem.head(np.stack(kernel, axis=1), np.zeros(len(kernel)))


def check_moments(clip_norm: object, ridge: object) -> None:
    """Refuses settings that no second moment can be clipped or solved with; None is a rule."""
    if clip_norm is not None:
        checks.positive("clip_norm", clip_norm)
    if ridge is not None:
        checks.not_negative("ridge", ridge)


def moment_ridge(problem: Problem, release: str, width: int, clip_norm: float) -> float:
    """What the noise of a published second moment asks to add to the diagonal of G / n."""
    noise = problem.spending.noise_multiplier(release) * clip_norm**2 * math.sqrt(2 * width)
    return max(noise / problem.task.num_examples, 1e-3 * clip_norm**2 / width)
