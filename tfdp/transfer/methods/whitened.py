"""Whitening by a private second moment, then a few large full-batch steps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp import checks
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.full_batch_steps import Steps, run_steps
from tfdp.transfer.methods.method import Method, Problem, Task
from tfdp.transfer.release_budget import Release

#: The least eigenvalue of G / n that is believed, in units of what the mean one is bound to be.
_LEAST_VALUE = 0.01


@dataclasses.dataclass(frozen=True)
class Whitened(Method):
    """Full-batch steps on rows that a noisy second moment has made of similar spread.

    Four choices, each of public numbers alone, make it work without tuning:

    - Rows are whitened by (G / n + ridge)^(-1/2), with the ridge at the size of the noise in
      G / n. Where noise hides the spectrum this leaves rows as they are; elsewhere all
      directions learn at the same pace.
    - The whitened rows are scaled to a root mean square norm of 1, by the released G.
    - Clipping is far below the largest gradient, so that late steps, to which only few
      examples still contribute, are not drowned in noise that is scaled for many.
    - The steps are as long as the noise allows; see `ruled_rate`.

    Attributes:
        loop: The steps; their clip norm is for rows of a typical norm of 1.
        share: Of the budget that the second moment gets; the gradients share the rest.
        ridge: In units of the noise in G / n (the radius of its spectrum).
    """

    loop: Steps = Steps(steps=30, clip_norm=0.15, optimizer="momentum", momentum=0.8)
    share: float = 0.2
    ridge: float = 1.0

    def __post_init__(self) -> None:
        checks.kind("loop", self.loop, Steps)
        checks.share("share", self.share)
        checks.not_negative("ridge", self.ridge)

    def releases(self, task: Task) -> list[Release]:
        """Returns the second moment and the gradients."""
        return [
            Release("second moment", self.share),
            Release("gradient", 1 - self.share, self.loop.steps),
        ]

    def fit(self, problem: Problem) -> Head:
        """Releases the second moment, then runs the steps."""
        whitened = problem.projected(self._projection(problem), typical_norm=1.0)
        kernel, bias = run_steps(whitened, self.loop, "gradient")
        return whitened.head(kernel, bias, self.loop.fixed_bias)

    def _projection(self, problem: Problem) -> np.ndarray:
        """Returns the whitening matrix `[P, P]`; a function of released numbers."""
        n, spending = problem.task.num_examples, problem.spending
        clip = problem.typical_norm
        moment = problem.sums.second_moment(clip)
        (noisy,) = spending.release("second moment", moment, sensitivity=clip**2)
        deviation = spending.noise_multiplier("second moment") * clip**2 / n
        radius = deviation * math.sqrt(2 * len(noisy))
        values, vectors = np.linalg.eigh((noisy + noisy.T) / (2 * n))
        # Noise may swamp even the trace; that makes no direction count as empty.
        values = np.maximum(denoised(values, radius), _LEAST_VALUE * clip**2 / len(noisy))
        scales = 1 / np.sqrt(values + self.ridge * radius)
        typical = math.sqrt(float(np.sum(values * scales**2)))
        return vectors * (scales / typical)


def denoised(values: np.ndarray, radius: float) -> np.ndarray:
    """Returns eigenvalues of a positive matrix, from those of the matrix plus symmetric noise.

    The noise alone has a semicircle spectrum of the given radius. An eigenvalue v outside of it
    belongs to a true one of (v + sqrt(v^2 - radius^2)) / 2 (Capitaine, Donati-Martin and Feral
    2009); only the sum of the others is known, and each gets
    the same part of it.

    Args:
        values: `[P]`, ascending.
        radius: sqrt(2 P) standard deviations of a diagonal entry of the symmetrized noise.
    """
    clear = values > radius
    true = np.where(clear, (values + np.sqrt(np.maximum(values**2 - radius**2, 0))) / 2, 0.0)
    rest = max(float(values.sum() - true.sum()), 0.0) / max(int((~clear).sum()), 1)
    return np.where(clear, true, rest)
