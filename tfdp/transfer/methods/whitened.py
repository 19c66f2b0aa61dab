"""Whitening by a private second moment, then a few large full-batch steps."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from tfdp import checks
from tfdp.transfer.head import Head
from tfdp.transfer.methods.base import Method, Problem, Task
from tfdp.transfer.methods.steps import Steps, run_steps
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.spending import Release

#: The least eigenvalue of G / n that is believed, in units of what the mean one is bound to be.
_LEAST_VALUE = 0.01


@dataclasses.dataclass(frozen=True)
class Whitened(Method):
    """Full-batch steps on rows that a noisy second moment has made of similar spread.

    Four choices, each of public numbers alone, make it work without tuning:

    - Rows are whitened by (G / n + ridge)^(-1/2), with the ridge at the size of the noise in
      G / n. Where noise hides the spectrum this leaves rows as they are, where it does not all
      directions learn at the same pace.
    - The whitened rows are scaled to a root mean square norm of 1, by the published G.
    - Clipping is far below the largest gradient, so that late steps, which only few examples
      still feel, are not drowned in noise that is scaled for many.
    - The steps are as long as the noise allows; see `ruled_rate`.

    Attributes:
        loop: the steps; its clip is for rows of a typical norm of 1.
        share: of the budget that the second moment gets; the gradients share the rest.
        ridge: in units of the noise in G / n (the radius of its spectrum).
    """

    preparation: ClassVar[Preparation] = Preparation(normalise="root", centre="private")

    loop: Steps = Steps(steps=30, clip_norm=0.15, optimizer="momentum", momentum=0.8)
    share: float = 0.2
    ridge: float = 1.0

    def __post_init__(self) -> None:
        checks.kind("loop", self.loop, Steps)
        checks.share("share", self.share)
        checks.not_negative("ridge", self.ridge)

    def releases(self, task: Task) -> list[Release]:
        """The second moment and the gradients."""
        return [
            Release("second moment", self.share),
            Release("gradient", 1 - self.share, self.loop.steps),
        ]

    def fit(self, problem: Problem) -> Head:
        """Publishes the second moment, then runs the steps."""
        whitened = problem.projected(self._projection(problem), typical_norm=1.0)
        kernel, bias = run_steps(whitened, self.loop, "gradient")
        return whitened.head(kernel, bias, self.loop.fixed_bias)

    def _projection(self, problem: Problem) -> np.ndarray:
        """The whitening matrix `[P, P]`; a function of published numbers."""
        n, spending = problem.task.num_examples, problem.spending
        clip = problem.typical_norm
        moment = problem.sums.second_moment(clip)
        (noisy,) = spending.publish("second moment", moment, sensitivity=clip**2)
        deviation = spending.noise_multiplier("second moment") * clip**2 / n
        radius = deviation * math.sqrt(2 * len(noisy))
        values, vectors = np.linalg.eigh((noisy + noisy.T) / (2 * n))
        # Noise may swamp even the trace; no direction is taken for empty because of that.
        values = np.maximum(denoised(values, radius), _LEAST_VALUE * clip**2 / len(noisy))
        scales = 1 / np.sqrt(values + self.ridge * radius)
        typical = math.sqrt(float(np.sum(values * scales**2)))
        return vectors * (scales / typical)


def denoised(values: np.ndarray, radius: float) -> np.ndarray:
    """Eigenvalues of a positive matrix, from those of the matrix plus symmetric noise.

    The noise alone has a semicircle spectrum of the given radius. An eigenvalue v outside of it
    belongs to a true one of (v + sqrt(v^2 - radius^2)) / 2 (Capitaine, Donati-Martin and Feral
    2009); the others tell no more than their sum, and get the same part of it each.

    Args:
        values: `[P]`, ascending.
        radius: sqrt(2 P) standard deviations of a diagonal entry of the symmetrised noise.
    """
    clear = values > radius
    true = np.where(clear, (values + np.sqrt(np.maximum(values**2 - radius**2, 0))) / 2, 0.0)
    rest = max(float(values.sum() - true.sum()), 0.0) / max(int((~clear).sum()), 1)
    return np.where(clear, true, rest)
