"""Full-batch noisy gradient steps, and the one step from zero that needs no tuning."""

from __future__ import annotations

import dataclasses

from tfdp.transfer.head import Head
from tfdp.transfer.losses import first_residual_norm
from tfdp.transfer.methods.base import Method, Problem, Task
from tfdp.transfer.methods.steps import Steps, run_steps
from tfdp.transfer.spending import Release


@dataclasses.dataclass(frozen=True)
class FullBatch(Method):
    """T clipped and noised gradients over all rows, each given to an optimizer.

    Attributes:
        loop: the steps.
    """

    loop: Steps = Steps(steps=30, optimizer="momentum")

    def releases(self, task: Task) -> list[Release]:
        """The gradients share the whole budget equally."""
        return [Release("gradient", count=self.loop.steps)]

    def fit(self, problem: Problem) -> Head:
        """Runs the steps."""
        kernel, bias = run_steps(problem, self.loop, "gradient")
        return problem.head(kernel, bias, self.loop.fixed_bias)


@dataclasses.dataclass(frozen=True)
class OneStep(Method):
    """One full-batch step from zero weights (Mehta et al. 2022).

    There is nothing to tune, and so nothing to charge for tuning. From exact zero all residuals
    have the same norm, so with rows of unit norm all gradients do: C is that norm, no gradient
    is clipped, and the predicted class depends neither on C nor on the learning rate.

    Attributes:
        loss: "softmax" or "sigmoid".
        fixed_bias: added to all logits; with a very negative one and the sigmoid loss only a
            row's own class feels it.
        init: standard deviation of near-zero random first weights.
        optimizer: as for `Steps`; SGD gives the noisy class-sum classifier.
        learning_rate: matters only where `init` is not 0.
    """

    loss: str = "softmax"
    fixed_bias: float = 0.0
    init: float = 0.0
    optimizer: str = "sgd"
    learning_rate: float = 1.0

    def releases(self, task: Task) -> list[Release]:
        """The one gradient."""
        return [Release("gradient")]

    def fit(self, problem: Problem) -> Head:
        """Takes the step."""
        loop = self._loop(problem.task)
        kernel, bias = run_steps(problem, loop, "gradient")
        return problem.head(kernel, bias, loop.fixed_bias)

    def _loop(self, task: Task) -> Steps:
        return Steps(
            steps=1,
            clip_norm=first_residual_norm(self.loss, task.num_classes, self.fixed_bias),
            loss=self.loss,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            init=self.init,
            fixed_bias=self.fixed_bias,
        )
