"""Public maps of a feature row by itself, which bound its norm before anything is published."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

NORMALISATIONS = ("none", "unit", "root")


def check_normalisation(kind: str) -> str:
    """Returns `kind` if there is such a normalisation.

    Raises:
        ValueError: there is none.
    """
    if kind not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {', '.join(NORMALISATIONS)}, got {kind!r}.")
    return kind


def normalised(features: np.ndarray, kind: str) -> np.ndarray:
    """Rows as float32 `[B, D]`: as they are, or of unit norm; rows of zeros stay zero.

    "unit" divides a row by its norm. "root" first takes signed square roots, which evens out
    the few strong responses of pooled features (power normalisation, Perronnin et al. 2010).
    """
    rows = features.astype(np.float32, copy=False)
    if kind == "none":
        return rows
    if kind == "root":
        rows = np.sign(rows) * np.sqrt(np.abs(rows))
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows * np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)[:, None]


@keras.saving.register_keras_serializable("tfdp")
class FeatureNormalisation(keras.layers.Layer):
    """`normalised` as a Keras layer without weights, `[B, D]` to `[B, D]`."""

    def __init__(self, kind: str = "unit", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = check_normalisation(kind)

    def call(self, inputs: Any) -> Any:
        """Normalises rows."""
        rows = ops.cast(inputs, "float32")
        if self.kind == "none":
            return rows
        if self.kind == "root":
            rows = ops.sign(rows) * ops.sqrt(ops.abs(rows))
        squares = ops.sum(ops.square(rows), axis=-1, keepdims=True)
        positive = squares > 0
        return rows * ops.where(positive, ops.rsqrt(ops.where(positive, squares, 1.0)), 0.0)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """The shape stays."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The kind, for saving."""
        return {**super().get_config(), "kind": self.kind}
