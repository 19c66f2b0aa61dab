"""Noisy class means: the nearest prototype."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfdp import checks
from tfdp.transfer.feature_preparation import at_least
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.method import Method, Problem, Task, squared_norms
from tfdp.transfer.release_budget import Release


@dataclasses.dataclass(frozen=True)
class ClassMeans(Method):
    """Assigns an example to the nearest of the noisy class means.

    Each mean is a noisy class sum over a noisy class count. The expected squared norm of the
    noise in a mean is known and is subtracted from the squared norm of the mean.

    Attributes:
        clip_norm: C, the largest norm of a seen row; None takes their typical norm.
        share: Of the budget that the class sums get; the counts get the rest.
    """

    clip_norm: float | None = None
    share: float = 0.9

    def __post_init__(self) -> None:
        checks.share("share", self.share)
        if self.clip_norm is not None:
            checks.positive("clip_norm", self.clip_norm)

    def releases(self, task: Task) -> list[Release]:
        """Returns class sums and class counts."""
        return [
            Release("class sums", self.share),
            Release("class sizes", 1 - self.share),
        ]

    def fit(self, problem: Problem) -> Head:
        """Makes the two releases."""
        spending = problem.spending
        clip = self.clip_norm or problem.typical_norm
        sums = problem.class_sums("class sums", clip)
        (counts,) = spending.release("class sizes", problem.sums.class_counts(), sensitivity=1.0)
        counts = at_least(counts, spending.noise_multiplier("class sizes"))
        deviation = spending.noise_multiplier("class sums") * clip
        means = sums / counts  # [P, K]
        squares = squared_norms(means, deviation / counts)
        return problem.head(means, np.zeros(means.shape[1]), -squares / 2)
