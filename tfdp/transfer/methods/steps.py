"""Noisy full-batch steps: the loop that several methods end in."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks, optimizers
from tfdp.optimizers import PrivateOptimizer
from tfdp.transfer.losses import residual_of
from tfdp.transfer.methods.base import Problem

_OPTIMIZERS: dict[str, type[PrivateOptimizer]] = {
    "sgd": optimizers.DPSGD,
    "momentum": optimizers.DPSGD,
    "adam": optimizers.DPAdam,
    "lamb": optimizers.DPLAMB,
}
#: The most that all steps may be long together, for budgets with next to no noise.
_LONGEST = 3e5


@dataclasses.dataclass(frozen=True)
class Steps:
    """How the loop runs.

    Attributes:
        steps: T, one or more.
        clip_norm: C, bound on one example's gradient by kernel and bias jointly.
        loss: "softmax" or "sigmoid" (one-versus-rest).
        optimizer: "sgd", "momentum", "adam", "lamb", or a private optimizer of
            `tfdp.optimizers`, whose clip and noise are replaced by this loop's.
        learning_rate: for optimizers by name; None takes the rule of `ruled_rate`.
        logit_noise: for that rule, the standard deviation that the noise of all steps together
            gives a typical logit.
        momentum: for "momentum".
        init: standard deviation of random first weights; 0 starts from exact zeros.
        fixed_bias: a public constant added to every logit and never trained; P2 uses -10 with
            the sigmoid loss.
        average: share of the last iterates whose mean is the result; 0 takes the last one.
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
        residual_of(self.loss)
        if not isinstance(self.optimizer, PrivateOptimizer) and self.optimizer not in _OPTIMIZERS:
            raise ValueError(
                f"optimizer must be one of {', '.join(_OPTIMIZERS)} or a private optimizer of "
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


def run_steps(
    problem: Problem,
    settings: Steps,
    release: str,
    precondition: np.ndarray | None = None,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Runs the loop on seen rows; every step is a publication of `release`.

    The divisor of every mean is the public number of examples.

    Args:
        problem: rows, view and budget.
        settings: of the loop.
        release: what each step's noise is booked on.
        precondition: symmetric `[P, P]` that every noisy kernel gradient is multiplied with.
        start: first kernel `[P, K]`, public or already paid for, in place of `settings.init`.

    Returns:
        Kernel `[P, K]` and bias `[K]` of seen rows, the fixed bias included.
    """
    sums, spending = problem.sums, problem.spending
    kernel = keras.Variable(_first_kernel(problem, settings, start), name="kernel")
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
        noisy = spending.publish_mean(
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


def _first_kernel(problem: Problem, settings: Steps, start: np.ndarray | None) -> np.ndarray:
    shape = problem.sums.width, problem.sums.num_classes
    if start is not None:
        return start.astype(np.float32)
    if not settings.init:
        return np.zeros(shape, np.float32)
    return problem.spending.public_normal(shape) * np.float32(settings.init)


def _optimizer(problem: Problem, settings: Steps, release: str) -> PrivateOptimizer:
    """A fresh optimizer that states this loop's clip and noise."""
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
    return _OPTIMIZERS[given](learning_rate=rate, **numbers)


def ruled_rate(problem: Problem, settings: Steps, release: str) -> float:
    """A learning rate from public numbers: noise, N, T, C and the typical norm of a row.

    A step of SGD moves a weight by rate * gradient, whose noise has the standard deviation
    s C / N; T steps add sqrt(T) of that, and a row of norm r makes a logit's noise of it r times
    as large. The rate is the one at which this comes to `logit_noise`. It is far larger than
    gradient descent bears; but clipped steps are bounded, and a large-margin solution is reached
    in few of them. Adam and LAMB make steps of length rate per weight whatever the gradient.
    """
    norm, count = problem.typical_norm, settings.steps
    if settings.optimizer in ("adam", "lamb"):
        return settings.logit_noise / (math.sqrt(count) * norm)
    noise = problem.spending.noise_multiplier(release) * math.sqrt(count) * settings.clip_norm
    rate = _LONGEST / count
    if noise:
        rate = min(rate, settings.logit_noise * problem.task.num_examples / (noise * norm))
    return rate * (1 - settings.momentum) if settings.optimizer == "momentum" else rate
