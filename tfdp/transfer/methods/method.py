"""What a last layer's method is given, and what it states before it may look at an example."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from tfdp import checks
from tfdp.transfer.clipped_sums import ClippedSums, View
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.linear_head import Head
from tfdp.transfer.passes import Passes
from tfdp.transfer.release_budget import Release, Spending


@dataclasses.dataclass(frozen=True)
class Task:
    """The public facts that settings may be chosen from.

    Attributes:
        num_examples: N.
        num_classes: K.
        dim: D, the width of the features.
        noise_multiplier: s of the whole budget as a single release; 0 without privacy. It stands
            for epsilon and delta, and is what accuracy depends on.
    """

    num_examples: int
    num_classes: int
    dim: int
    noise_multiplier: float


@dataclasses.dataclass(frozen=True)
class Problem:
    """Features, how to see them, and the budget to spend on them.

    Attributes:
        task: The public facts.
        passes: Over the features.
        view: How features are seen, public or already released with noise.
        weights: Public class weights `[K]`, or None.
        typical_norm: Of seen rows, as far as released numbers tell. Clipping to it hardly changes
            anything and needs less noise.
        spending: Makes the releases.
    """

    task: Task
    passes: Passes
    view: View
    weights: np.ndarray | None
    typical_norm: float
    spending: Spending

    @functools.cached_property
    def sums(self) -> ClippedSums:
        """Clipped sums over the seen rows."""
        return ClippedSums(self.passes, self.view, self.weights)

    def projected(self, projection: np.ndarray, typical_norm: float) -> Problem:
        """Returns the same problem with seen rows projected once more, by `[P, P']`."""
        outer = self.view.projection
        projection = projection if outer is None else outer @ projection
        view = dataclasses.replace(self.view, projection=projection)
        return dataclasses.replace(self, view=view, typical_norm=typical_norm)

    def moment(self, name: str, clip_norm: float) -> np.ndarray:
        """Releases the second moment: symmetric, positive semi-definite, float64 `[P, P]`."""
        exact = self.sums.second_moment(clip_norm)
        return positive(*self.spending.release(name, exact, sensitivity=clip_norm**2))

    def head(
        self, kernel: np.ndarray, bias: np.ndarray, constant: np.ndarray | float = 0.0
    ) -> Head:
        """Returns the head that does to normalized rows what kernel and bias do to seen rows.

        Args:
            kernel, bias: `[P, K]`, `[K]`.
            constant: Added to the logits, a number or `[K]`.
        """
        plain, offset = self.view.folded(
            np.asarray(kernel, np.float64), np.asarray(bias, np.float64)
        )
        offset = (offset + constant).astype(np.float32)
        return Head(plain.astype(np.float32), offset, self.passes.normalize)

    def class_sums(self, name: str, clip_norm: float) -> np.ndarray:
        """Releases the sums of each class's rows, float64 `[P, K]`."""
        exact = self.sums.class_sums(clip_norm)
        return self.spending.release(name, exact, sensitivity=clip_norm)[0]


class Method(abc.ABC):
    """A way to train a private linear head: immutable settings; `fit` keeps no state."""

    #: What happens to features first, unless the user asks for another preparation.
    preparation: ClassVar[Preparation] = Preparation(normalize="root", center="private")

    def settled(self, task: Task) -> Method:
        """Returns the method with every open setting chosen from the public facts alone."""
        return self

    @abc.abstractmethod
    def releases(self, task: Task) -> list[Release]:
        """Returns everything that will be released, with shares that add up to 1."""

    @abc.abstractmethod
    def fit(self, problem: Problem) -> Head:
        """Makes the releases and returns the head. Looks at examples in no other way."""


def shared_releases(preparation: Preparation, method: Method, task: Task) -> list[Release]:
    """Returns the releases of both, the method's in what the preparation leaves of the budget."""
    first = preparation.releases()
    left = 1 - math.fsum(release.share for release in first)
    return first + [
        dataclasses.replace(release, share=release.share * left)
        for release in method.releases(task)
    ]


def prepared(
    preparation: Preparation,
    task: Task,
    passes: Passes,
    spending: Spending,
    public_features: np.ndarray | None = None,
) -> Problem:
    """Makes the releases of the preparation, and returns what is left to the method."""
    view = preparation.view(passes, spending, public_features)
    weights = preparation.weights(passes, spending)
    return Problem(task, passes, view, weights, preparation.typical_norm(view), spending)


def positive(matrix: np.ndarray) -> np.ndarray:
    """Returns the nearest symmetric positive semi-definite matrix, in Frobenius norm.

    The released matrix carries independent noise in all its entries; the two copies of an
    entry are averaged, which halves the variance off the diagonal.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def squared_norms(means: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
    """Returns squared norms `[K]` of the columns of a noisy `[P, K]`, without the noise's part."""
    return np.maximum(np.sum(means**2, axis=0) - len(means) * np.square(deviation), 0)


def moment_ridge(
    problem: Problem, ridge: float | None, release: str, width: int, clip_norm: float
) -> float:
    """Returns the ridge, or what the noise of a released second moment asks to add to G / n.

    The rule is of noise, n and D alone: the size of the noise in G / n (its spectral norm is about
    sqrt(2 D) standard deviations), and at least a thousandth of the mean eigenvalue C^2 / D.

    Args:
        problem: Tells the noise and n.
        ridge: A ridge to take instead of the rule.
        release: The second moment.
        width: D.
        clip_norm: C.
    """
    if ridge is not None:
        return ridge
    noise = problem.spending.noise_multiplier(release) * clip_norm**2 * math.sqrt(2 * width)
    return max(noise / problem.task.num_examples, 1e-3 * clip_norm**2 / width)


def check_moments(clip_norm: object, ridge: object) -> None:
    """Rejects settings that no second moment can be clipped or solved with; None is a rule."""
    if clip_norm is not None:
        checks.positive("clip_norm", clip_norm)
    if ridge is not None:
        checks.not_negative("ridge", ridge)
