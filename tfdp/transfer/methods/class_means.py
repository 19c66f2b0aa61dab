"""Noisy class means: the nearest prototype."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfdp.transfer.head import Head
from tfdp.transfer.methods.base import Method, Problem, Task
from tfdp.transfer.spending import Release


@dataclasses.dataclass(frozen=True)
class ClassMeans(Method):
    """Assigns a row to the nearest of the noisy class means.

    Each mean is a noisy class sum over a noisy class count. The expected squared norm of the
    noise in a mean is known and is taken off the squared norm of the mean.

    Attributes:
        clip_norm: C, bound on the norm of a seen row.
        share: of the budget that the class sums get; the counts get the rest.
    """

    clip_norm: float = 1.0
    share: float = 0.9

    def releases(self, task: Task) -> list[Release]:
        """Class sums and class counts."""
        return [
            Release("class sums", self.clip_norm, self.share),
            Release("class counts", 1.0, 1 - self.share),
        ]

    def fit(self, problem: Problem) -> Head:
        """Makes the two releases."""
        spending = problem.spending
        (sums,) = spending.publish("class sums", problem.sums.class_sums(self.clip_norm))
        (counts,) = spending.publish("class counts", problem.sums.class_counts())
        counts = at_least(counts, spending.stddev("class counts"))
        means = sums / counts  # [P, K]
        noise = len(means) * (spending.stddev("class sums") / counts) ** 2
        squares = np.maximum(np.sum(means**2, axis=0) - noise, 0)
        bias_unit = problem.view.bias or 1.0
        view = dataclasses.replace(problem.view, bias=bias_unit)
        return Head.of_view(view, means, -squares / 2 / bias_unit)


def at_least(counts: np.ndarray, stddev: float) -> np.ndarray:
    """Noisy counts with those that noise alone could have made raised to its size."""
    return np.maximum(counts, max(1.0, 2 * stddev))
