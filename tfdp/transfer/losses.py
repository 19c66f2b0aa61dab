"""Losses of a linear head, by the residual that their gradient is made of.

The gradient of one example is the outer product of its features and a residual `[K]`; its norm
is the product of the two norms. Nothing else about a loss matters here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

Residual = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def softmax_residual(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Of softmax cross-entropy: probabilities minus one-hot targets, `[B, K]`."""
    return tf.nn.softmax(logits) - targets


def sigmoid_residual(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Of one-versus-rest logistic loss, summed over classes, `[B, K]`."""
    return tf.sigmoid(logits) - targets


RESIDUALS: dict[str, Residual] = {"softmax": softmax_residual, "sigmoid": sigmoid_residual}


def residual_of(loss: str) -> Residual:
    """The residual of a loss by name.

    Raises:
        ValueError: there is no such loss.
    """
    if loss not in RESIDUALS:
        raise ValueError(f"loss must be one of {', '.join(RESIDUALS)}, got {loss!r}.")
    return RESIDUALS[loss]


def first_residual_norm(loss: str, num_classes: int, constant: float = 0.0) -> float:
    """The norm that every residual has while all logits equal a constant.

    sqrt(1 - 1/K) for softmax; sqrt((1 - p)^2 + (K - 1) p^2) with p = sigmoid(constant) for
    one-versus-rest, which is sqrt(K) / 2 at 0.
    """
    residual_of(loss)
    if loss == "softmax":
        return math.sqrt(1 - 1 / num_classes)
    p = math.exp(min(constant, 0)) / (1 + math.exp(-abs(constant)))
    return math.sqrt((1 - p) ** 2 + (num_classes - 1) * p**2)
