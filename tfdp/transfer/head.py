"""A linear classifier of features: what every method ends in."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from tfdp.transfer.normalise import FeatureNormalisation, normalised


@dataclasses.dataclass(frozen=True)
class Head:
    """Logits x @ kernel + bias of normalised rows.

    Attributes:
        kernel: float32 `[D, K]`.
        bias: float32 `[K]`.
        normalise: what is done to a feature row first; see `normalised`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    normalise: str

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Float32 `[B, K]` for features `[B, D]`."""
        return normalised(features, self.normalise) @ self.kernel + self.bias

    def to_keras(self, name: str = "head") -> keras.Sequential:
        """The same as a Keras model of features `[B, D]`."""
        dim, num_classes = self.kernel.shape
        layers: list[keras.Layer] = [keras.Input((dim,))]
        layers.append(FeatureNormalisation(self.normalise, name="normalise"))
        layers.append(keras.layers.Dense(num_classes, name="logits"))
        model = keras.Sequential(layers, name=name)
        model.layers[-1].set_weights([self.kernel, self.bias])
        return model
