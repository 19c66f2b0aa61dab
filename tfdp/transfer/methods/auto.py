"""The default: a method picked from the number of rows, classes and columns and the noise."""

from __future__ import annotations

import dataclasses

from tfdp.transfer.head import Head
from tfdp.transfer.methods.base import Method, Problem, Task
from tfdp.transfer.methods.logistic import Logistic
from tfdp.transfer.methods.whitened import Whitened
from tfdp.transfer.spending import Release


@dataclasses.dataclass(frozen=True)
class Auto(Method):
    """Picks by a rule of epsilon and delta (through the noise), N, D and K alone.

    Without noise it is logistic regression, solved to the end. With noise it is `Whitened`,
    whose own rules set its ridge and its step lengths.
    """

    def settled(self, task: Task) -> Method:
        """The method that the rule gives."""
        if not task.noise_multiplier:
            return Logistic()
        return Whitened()

    def releases(self, task: Task) -> list[Release]:
        """Those of the method picked."""
        return self.settled(task).releases(task)

    def fit(self, problem: Problem) -> Head:
        """Fits the method picked."""
        return self.settled(problem.task).fit(problem)
