"""A linear classifier of features: what every method ends in."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from tfdp.transfer.view import View


@dataclasses.dataclass(frozen=True)
class Head:
    """Logits x @ kernel + bias, of rows that are first scaled to unit norm if `unit` says so.

    Attributes:
        kernel: float32 `[D, K]`.
        bias: float32 `[K]`.
        unit: whether rows are scaled to unit norm.
    """

    kernel: np.ndarray
    bias: np.ndarray
    unit: bool

    @classmethod
    def of_view(cls, view: View, kernel: np.ndarray, bias: np.ndarray) -> Head:
        """The head of plain rows that does what `kernel`, `bias` do on rows seen through `view`."""
        plain, offset = view.folded(np.asarray(kernel, np.float64), np.asarray(bias, np.float64))
        return cls(plain.astype(np.float32), offset.astype(np.float32), view.unit)

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Float32 `[B, K]` for features `[B, D]`."""
        return View(unit=self.unit).apply(features) @ self.kernel + self.bias

    def to_keras(self, name: str = "head") -> keras.Sequential:
        """The same as a Keras model of features `[B, D]`."""
        dim, num_classes = self.kernel.shape
        layers: list[keras.Layer] = [keras.Input((dim,))]
        if self.unit:
            layers.append(keras.layers.UnitNormalization(name="unit_norm"))
        layers.append(keras.layers.Dense(num_classes, name="logits"))
        model = keras.Sequential(layers, name=name)
        model.layers[-1].set_weights([self.kernel, self.bias])
        return model
