"""What a method is given, and what it has to say before it may look at a row."""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import ClassVar

import numpy as np

from tfdp.transfer.head import Head
from tfdp.transfer.passes import Passes
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.spending import Release, Spending
from tfdp.transfer.sums import RowSums
from tfdp.transfer.view import View


@dataclasses.dataclass(frozen=True)
class Task:
    """The public facts that settings may be chosen from.

    Attributes:
        num_examples: N.
        num_classes: K.
        dim: D, columns of a feature row.
        noise_multiplier: s of the whole budget as a single release; 0 without privacy. It stands
            for epsilon and delta, and is what accuracy depends on.
    """

    num_examples: int
    num_classes: int
    dim: int
    noise_multiplier: float


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows, how to see them, and the budget to spend on them.

    Attributes:
        task: the public facts.
        passes: over the rows.
        view: how rows are seen, public or already paid for.
        weights: public class weights `[K]`, or None.
        typical_norm: of seen rows, as far as published numbers tell; bounds that are as tight
            hardly change anything, and need less noise.
        spending: makes the releases.
    """

    task: Task
    passes: Passes
    view: View
    weights: np.ndarray | None
    typical_norm: float
    spending: Spending

    @functools.cached_property
    def sums(self) -> RowSums:
        """Bounded sums over the seen rows."""
        return RowSums(self.passes, self.view, self.weights)

    def projected(self, projection: np.ndarray, typical_norm: float) -> Problem:
        """The same with seen rows projected once more, by `[P, P']`."""
        outer = self.view.projection
        projection = projection if outer is None else outer @ projection
        view = dataclasses.replace(self.view, projection=projection)
        return dataclasses.replace(self, view=view, typical_norm=typical_norm)

    def moment(self, name: str, clip_norm: float) -> np.ndarray:
        """Publishes the second moment: symmetric, positive semi-definite, float64 `[P, P]`."""
        exact = self.sums.second_moment(clip_norm)
        return positive(*self.spending.publish(name, exact, sensitivity=clip_norm**2))

    def head(
        self, kernel: np.ndarray, bias: np.ndarray, constant: np.ndarray | float = 0.0
    ) -> Head:
        """The head that does to normalised rows what kernel and bias do to seen rows.

        Args:
            kernel, bias: `[P, K]`, `[K]`.
            constant: added to the logits, a number or `[K]`.
        """
        plain, offset = self.view.folded(
            np.asarray(kernel, np.float64), np.asarray(bias, np.float64)
        )
        offset = (offset + constant).astype(np.float32)
        return Head(plain.astype(np.float32), offset, self.passes.normalise)

    def class_sums(self, name: str, clip_norm: float) -> np.ndarray:
        """Publishes the sums of each class's rows, float64 `[P, K]`."""
        exact = self.sums.class_sums(clip_norm)
        return self.spending.publish(name, exact, sensitivity=clip_norm)[0]


class Method(abc.ABC):
    """A way to a private linear head. Methods are immutable settings; `fit` keeps no state."""

    #: What happens to rows first, unless the user says otherwise.
    preparation: ClassVar[Preparation] = Preparation()

    @property
    def name(self) -> str:
        """The name in tables."""
        return type(self).__name__

    def settled(self, task: Task) -> Method:
        """The method with every open setting chosen from the public facts alone."""
        return self

    @abc.abstractmethod
    def releases(self, task: Task) -> list[Release]:
        """All that will be published about the rows, with shares that add up to 1."""

    @abc.abstractmethod
    def fit(self, problem: Problem) -> Head:
        """Makes the releases and returns the head. Looks at rows in no other way."""


def positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest symmetric positive semi-definite matrix, in Frobenius norm.

    The published matrix carries independent noise in all its entries; the two copies of an
    entry are averaged, which halves the variance off the diagonal.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def squared_norms(means: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
    """Squared norms `[K]` of the columns of a noisy `[P, K]`, without what noise adds to them."""
    return np.maximum(np.sum(means**2, axis=0) - len(means) * np.square(deviation), 0)
