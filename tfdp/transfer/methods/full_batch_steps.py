"""Full-batch noisy gradient steps, and the one step from zero that needs no tuning."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks, optimizers
from tfdp.optimizers import PrivateOptimizer
from tfdp.transfer.clipped_sums import RESIDUALS, first_residual_norm
from tfdp.transfer.feature_preparation import Preparation
from tfdp.transfer.linear_head import Head
from tfdp.transfer.methods.method import Method, Problem, Task, squared_norms
from tfdp.transfer.release_budget import Release

OPTIMIZERS: dict[str, type[PrivateOptimizer]] = {
    "sgd": optimizers.DPSGD,
    "momentum": optimizers.DPSGD,
    "adam": optimizers.DPAdam,
    "lamb": optimizers.DPLAMB,
}
#: The most that all steps may be long together, for budgets with next to no noise.
_LONGEST = 3e5


@dataclasses.dataclass(frozen=True)
class Steps:
    """How a loop of full-batch steps runs.

    Attributes:
        steps: T, one or more.
        clip_norm: C, the largest norm of one example's gradient over kernel and bias jointly.
        loss: "softmax" or "sigmoid" (one-versus-rest).
        optimizer: "sgd", "momentum", "adam", "lamb", or a private optimizer of
            `tfdp.optimizers`, whose clip norm and noise are replaced by this loop's.
        learning_rate: For optimizers by name; None takes the rule of `ruled_rate`.
        logit_noise: For that rule, the standard deviation that the noise of all steps together
            gives a typical logit.
        momentum: For "momentum".
        init: Standard deviation of random first weights; 0 starts from exact zeros.
        fixed_bias: A public constant added to every logit and never trained; Mehta et al. 2022
            use -10 with the sigmoid loss.
        average: The part of the iterates, the last ones, whose mean is the result; 0 takes the
            last one alone.
    """

    steps: int = 1
    clip_norm: float = 1.0
    loss: str = "softmax"
    optimizer: str | PrivateOptimizer = "sgd"
    learning_rate: float | None = None
    logit_noise: float = 1.0
    momentum: float = 0.9
    init: float = 0.0
    fixed_bias: float = 0.0
    average: float = 0.0

    def __post_init__(self) -> None:
        checks.one_of("loss", self.loss, tuple(RESIDUALS))
        if not isinstance(self.optimizer, PrivateOptimizer) and self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)} or a private optimizer of "
                f"tfdp.optimizers, got {self.optimizer!r}."
            )
        checks.positive_int("steps", self.steps)
        checks.positive("clip_norm", self.clip_norm)
        if self.learning_rate is not None:
            checks.positive("learning_rate", self.learning_rate)
        checks.positive("logit_noise", self.logit_noise)
        checks.below_one("momentum", self.momentum)
        checks.not_negative("init", self.init)
        checks.finite("fixed_bias", self.fixed_bias)
        checks.below_one("average", self.average)


@dataclasses.dataclass(frozen=True)
class FullBatch(Method):
    """T clipped gradients over all examples with noise, each given to an optimizer.

    Attributes:
        loop: The steps.
    """

    loop: Steps = Steps(steps=30, clip_norm=0.15, optimizer="momentum", momentum=0.8)

    def __post_init__(self) -> None:
        checks.kind("loop", self.loop, Steps)

    def releases(self, task: Task) -> list[Release]:
        """Returns the gradients, which share the whole budget equally."""
        return [Release("gradient", count=self.loop.steps)]

    def fit(self, problem: Problem) -> Head:
        """Runs the steps."""
        kernel, bias = run_steps(problem, self.loop, "gradient")
        return problem.head(kernel, bias, self.loop.fixed_bias)


@dataclasses.dataclass(frozen=True)
class OneStep(Method):
    """One full-batch step from zero weights (Mehta et al. 2022).

    There is nothing to tune, and so nothing to pay for tuning. From exact zero all residuals
    have the same norm, so with rows of unit norm all gradients do: C is that norm, no gradient
    is clipped, and the predicted class depends neither on C nor on the learning rate.

    The head is a classifier of noisy class sums. With `prototypes` it becomes one of class means,
    which spends nothing: the step's own weights tell the norms of the means (of classes of equal
    size), and each logit loses half of the square. Center the features then.

    Attributes:
        loss: "softmax" or "sigmoid".
        fixed_bias: Added to all logits. With a very negative one and the sigmoid loss an example
            moves the weights of its own class only.
        init: Standard deviation of near-zero random first weights.
        optimizer: As for `Steps`; SGD gives the noisy class-sum classifier.
        learning_rate: Matters only where `init` is not 0.
        prototypes: Whether to set the bias for the nearest class mean; needs the softmax loss,
            SGD and exact zeros.
    """

    preparation: ClassVar[Preparation] = Preparation()

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
        self._loop(num_classes=2)  # rejects what is wrong with the others now
        if self.prototypes and (self.loss, self.init, self.optimizer) != ("softmax", 0, "sgd"):
            raise ValueError(
                "prototypes need loss='softmax', init=0 and optimizer='sgd', got "
                f"loss={self.loss!r}, init={self.init}, optimizer={self.optimizer!r}."
            )

    def releases(self, task: Task) -> list[Release]:
        """Returns the one gradient."""
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


def run_steps(
    problem: Problem,
    settings: Steps,
    release: str,
    precondition: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Runs the loop on seen rows; every step makes `release` once.

    The divisor of every mean is the public number of examples.

    Args:
        problem: Features, view and budget.
        settings: Of the loop.
        release: What each step's noise is recorded as.
        precondition: Symmetric `[P, P]` that every noisy kernel gradient is multiplied by.

    Returns:
        Kernel `[P, K]` and bias `[K]` of seen rows, the fixed bias included.
    """
    sums, spending = problem.sums, problem.spending
    kernel = keras.Variable(_first_kernel(problem, settings), name="kernel")
    bias = keras.Variable(np.zeros(sums.num_classes, np.float32), name="bias")
    trained = [kernel, bias] if problem.view.bias else [kernel]
    optimizer = _optimizer(problem, settings, release)
    optimizer.build(trained)
    kept = math.ceil(settings.average * settings.steps) or 1
    total_kernel, total_bias = np.zeros(kernel.shape), np.zeros(bias.shape)
    for step in range(settings.steps):
        gradients = sums.gradient(
            np.asarray(kernel),
            np.asarray(bias),
            loss=settings.loss,
            clip_norm=settings.clip_norm,
            constant=settings.fixed_bias,
        )
        noisy = spending.release_mean(
            release,
            gradients[: len(trained)],
            sensitivity=settings.clip_norm,
            divisor=problem.task.num_examples,
        )
        if precondition is not None:
            noisy = noisy._replace(
                gradients=[
                    keras.ops.matmul(precondition.astype(np.float32), noisy.gradients[0]),
                    *noisy.gradients[1:],
                ]
            )
        # Each replica of a strategy makes the same update of its copy; no gradient is summed.
        tf.distribute.get_strategy().run(functools.partial(optimizer.apply, noisy, trained))
        if step >= settings.steps - kept:
            total_kernel += np.asarray(kernel)
            total_bias += np.asarray(bias)
    return total_kernel / kept, total_bias / kept


def _first_kernel(problem: Problem, settings: Steps) -> np.ndarray:
    shape = problem.sums.width, problem.sums.num_classes
    if not settings.init:
        return np.zeros(shape, np.float32)
    return problem.spending.public_normal(shape) * np.float32(settings.init)


def _optimizer(problem: Problem, settings: Steps, release: str) -> PrivateOptimizer:
    """Returns a fresh optimizer that states this loop's clip norm and noise."""
    numbers: dict[str, Any] = {
        "l2_norm_clip": settings.clip_norm,
        "noise_multiplier": problem.spending.noise_multiplier(release),
    }
    given = settings.optimizer
    if not isinstance(given, str):
        config = {k: v for k, v in given.get_config().items() if k != "privacy"}
        return type(given).from_config({**config, **numbers})
    if given == "momentum":
        numbers["momentum"] = settings.momentum
    rate = settings.learning_rate or ruled_rate(problem, settings, release)
    return OPTIMIZERS[given](learning_rate=rate, **numbers)


def ruled_rate(problem: Problem, settings: Steps, release: str) -> float:
    """Returns a learning rate from public numbers: noise, N, T, C and the typical norm of a row.

    A step of SGD moves a weight by rate * gradient, whose noise has the standard deviation
    s C / N; T steps add sqrt(T) of that, and a row of norm r makes a logit's noise of it r times
    as large. The rate is the one at which this comes to `logit_noise`. It is far larger than plain
    gradient descent could take; but clipped steps are bounded, and a large-margin solution is
    reached in few of them. Adam and LAMB move each weight by the rate, whatever the gradient.
    """
    norm, count = problem.typical_norm, settings.steps
    if settings.optimizer in ("adam", "lamb"):
        return settings.logit_noise / (math.sqrt(count) * norm)
    noise = problem.spending.noise_multiplier(release) * math.sqrt(count) * settings.clip_norm
    rate = _LONGEST / count
    if noise:
        rate = min(rate, settings.logit_noise * problem.task.num_examples / (noise * norm))
    return rate * (1 - settings.momentum) if settings.optimizer == "momentum" else rate
