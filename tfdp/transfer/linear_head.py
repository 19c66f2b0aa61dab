"""A linear classifier of normalized features: what every method ends in."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdp import checks

NORMALIZATIONS = ("none", "unit", "root")


def normalized(features: np.ndarray, kind: str) -> np.ndarray:
    """Returns feature rows as float32 `[B, D]`, as they are or of unit norm; zeros stay zero.

    Each row is mapped by itself, so this spends no privacy and bounds a row's norm.

    Args:
        features: Floats `[B, D]`.
        kind: "none"; "unit", which divides a row by its norm; or "root", which first takes
            signed square roots. That evens out the few strong responses of pooled features (power
            normalization, Perronnin et al. 2010).
    """
    rows = features.astype(np.float32, copy=False)
    if kind == "none":
        return rows
    if kind == "root":
        rows = np.sign(rows) * np.sqrt(np.abs(rows))
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows * np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)[:, None]


@keras.saving.register_keras_serializable("tfdp")
class FeatureNormalization(keras.layers.Layer):
    """`normalized` as a Keras layer without weights, `[B, D]` to `[B, D]`."""

    def __init__(self, kind: str = "unit", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = checks.one_of("kind", kind, NORMALIZATIONS)

    def call(self, inputs: Any) -> Any:
        """Returns normalized rows."""
        rows = ops.cast(inputs, "float32")
        if self.kind == "none":
            return rows
        if self.kind == "root":
            rows = ops.sign(rows) * ops.sqrt(ops.abs(rows))
        squares = ops.sum(ops.square(rows), axis=-1, keepdims=True)
        positive = squares > 0
        return rows * ops.where(positive, ops.rsqrt(ops.where(positive, squares, 1.0)), 0.0)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns the same shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the kind, for saving."""
        return {**super().get_config(), "kind": self.kind}


@dataclasses.dataclass(frozen=True)
class Head:
    """Logits x @ kernel + bias of normalized rows.

    Attributes:
        kernel: Float32 `[D, K]`.
        bias: Float32 `[K]`.
        normalize: What is done to a feature row first; see `normalized`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    normalize: str

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Returns float32 `[B, K]` for features `[B, D]`."""
        return normalized(features, self.normalize) @ self.kernel + self.bias

    def to_keras(self, name: str = "head") -> keras.Sequential:
        """Returns the same as a Keras model of features `[B, D]`."""
        dim, num_classes = self.kernel.shape
        layers: list[keras.Layer] = [keras.Input((dim,))]
        layers.append(FeatureNormalization(self.normalize, name="normalize"))
        layers.append(keras.layers.Dense(num_classes, name="logits"))
        model = keras.Sequential(layers, name=name)
        model.layers[-1].set_weights([self.kernel, self.bias])
        return model
