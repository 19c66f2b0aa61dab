"""Full-batch noisy gradient steps, and the one step from zero that needs no tuning."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfdp import checks
from tfdp.transfer.head import Head
from tfdp.transfer.losses import first_residual_norm
from tfdp.transfer.methods.base import Method, Problem, Task, squared_norms
from tfdp.transfer.methods.steps import Steps, run_steps
from tfdp.transfer.prepare import Preparation
from tfdp.transfer.spending import Release


@dataclasses.dataclass(frozen=True)
class FullBatch(Method):
    """T clipped and noised gradients over all rows, each given to an optimizer.

    Attributes:
        loop: the steps.
    """

    preparation: ClassVar[Preparation] = Preparation(normalise="root", centre="private")

    loop: Steps = Steps(steps=30, clip_norm=0.15, optimizer="momentum", momentum=0.8)

    def __post_init__(self) -> None:
        checks.kind("loop", self.loop, Steps)

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

    The head is a classifier of noisy class sums. With `prototypes` it becomes one of class means,
    which costs nothing: the step's own weights tell the norms of the means (of classes of equal
    size), and each logit loses half of the square. Centre the rows then.

    Attributes:
        loss: "softmax" or "sigmoid".
        fixed_bias: added to all logits; with a very negative one and the sigmoid loss only a
            row's own class feels it.
        init: standard deviation of near-zero random first weights.
        optimizer: as for `Steps`; SGD gives the noisy class-sum classifier.
        learning_rate: matters only where `init` is not 0.
        prototypes: whether to set the bias for the nearest class mean; needs the softmax loss,
            SGD and exact zeros.
    """

    loss: str = "softmax"
    fixed_bias: float = 0.0
    init: float = 0.0
    optimizer: str = "sgd"
    learning_rate: float = 1.0
    prototypes: bool = False

    def __post_init__(self) -> None:
        checks.finite("fixed_bias", self.fixed_bias)
        checks.positive("learning_rate", self.learning_rate)
        checks.boolean("prototypes", self.prototypes)
        self._loop(num_classes=2)  # what is wrong with the rest is said now
        if self.prototypes and (self.loss, self.init, self.optimizer) != ("softmax", 0, "sgd"):
            raise ValueError(
                "prototypes need loss='softmax', init=0 and optimizer='sgd', got "
                f"loss={self.loss!r}, init={self.init}, optimizer={self.optimizer!r}."
            )

    def releases(self, task: Task) -> list[Release]:
        """The one gradient."""
        return [Release("gradient")]

    def fit(self, problem: Problem) -> Head:
        """Takes the step."""
        loop = self._loop(problem.task.num_classes)
        kernel, bias = run_steps(problem, loop, "gradient")
        if self.prototypes:
            means = kernel * problem.task.num_classes / self.learning_rate
            deviation = problem.spending.noise_multiplier("gradient") * loop.clip_norm
            deviation *= problem.task.num_classes / problem.task.num_examples
            return problem.head(means, bias, -squared_norms(means, deviation) / 2)
        return problem.head(kernel, bias, loop.fixed_bias)

    def _loop(self, num_classes: int) -> Steps:
        return Steps(
            steps=1,
            clip_norm=first_residual_norm(self.loss, num_classes, self.fixed_bias),
            loss=self.loss,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            init=self.init,
            fixed_bias=self.fixed_bias,
        )
