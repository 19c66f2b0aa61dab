"""Small models and data that several tests share."""

from __future__ import annotations

import keras
import numpy as np

from tfdp.clipping import ClippedSum, clipped_gradient_sum

layers = keras.layers


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def ids(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, shape).astype("int32")


def perturbed(model: keras.Model) -> keras.Model:
    """Moves biases and scales away from 0 and 1, where faults could hide."""
    for i, weight in enumerate(model.trainable_variables):
        weight.assign(weight + 0.2 * np.random.default_rng(i).normal(size=weight.shape))
    return model


def dense_net() -> keras.Model:
    """[B, 4] -> [B, 3]."""
    stack = [layers.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(3)]
    return perturbed(keras.Sequential(stack))


def token_net() -> keras.Model:
    """int32 [B, 6] -> [B, 6, 7]."""
    stack = [
        layers.Input((6,), dtype="int32"),
        layers.Embedding(9, 4),
        layers.LayerNormalization(),
        layers.Dense(7),
    ]
    return perturbed(keras.Sequential(stack))


def clipped(model, loss, x, y, clip_norm=1.0, **arguments) -> ClippedSum:
    """``clipped_gradient_sum`` without XLA, which takes long to compile small things."""
    return clipped_gradient_sum(model, loss, x, y, clip_norm, **{"jit_compile": False, **arguments})


def assert_same(found: ClippedSum, other: ClippedSum, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(found.norms, other.norms, rtol=rtol)
    np.testing.assert_allclose(found.losses, other.losses, rtol=rtol)
    for ours, theirs in zip(found.gradients, other.gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())
