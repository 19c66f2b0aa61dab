"""A backbone: a public network with the preprocessing that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops


class BackboneError(ValueError):
    """A backbone that cannot be made; the message says why and what would do."""


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network that turns pictures into feature rows.

    Attributes:
        name: As the user gave it.
        network: Preprocessed pictures `[B, S, S, 3]` -> features of any rank, or a dictionary.
        preprocess: RGB in 0..255, float32 `[B, S, S, 3]` -> what the network takes.
        image_size: S in pixels.
        description: Of weights and preprocessing, for manifests; plain JSON values.
        loaded: The SavedModel behind a network that is not a Keras model.
    """

    name: str
    network: Callable[..., Any]
    preprocess: Callable[[Any], Any]
    image_size: int
    description: dict[str, Any]
    loaded: Any = None

    @property
    def resources(self) -> Any:
        """What holds the weights: the Keras model, or the SavedModel."""
        return self.network if self.loaded is None else self.loaded

    def features(self, pictures: tf.Tensor) -> tf.Tensor:
        """Returns features, float32 `[B, D]`.

        Args:
            pictures: Square, RGB in 0..255, uint8 or float32 `[B, H, H, 3]`; resized if need be.
        """
        return pooled(self.network(self.preprocess(resized(pictures, self.image_size))))

    def row_of_black(self) -> tf.Tensor:
        """Returns the features `[1, D]` of a black picture: they tell the width."""
        return self.features(tf.zeros([1, self.image_size, self.image_size, 3]))


def resized(pictures: tf.Tensor, size: int) -> tf.Tensor:
    """Returns square pictures at `[B, size, size, 3]`, float32 in 0..255; bicubic, antialiased."""
    pictures = tf.cast(pictures, tf.float32)
    if pictures.shape[1:3] != (size, size):
        pictures = tf.image.resize(pictures, (size, size), "bicubic", antialias=True)
        pictures = tf.clip_by_value(pictures, 0.0, 255.0)
    return pictures


def pooled(output: Any) -> tf.Tensor:
    """Returns the mean over positions of maps `[B, H, W, D]` or tokens `[B, N, D]`: `[B, D]`."""
    if isinstance(output, dict):
        output = output.get("pooled_output", list(output.values())[-1])
    if isinstance(output, list | tuple):
        output = output[-1]
    axes = list(range(1, len(output.shape) - 1))
    return ops.cast(ops.mean(output, axis=axes) if axes else output, "float32")


def input_size(model: keras.Model, wanted: int | None, default: int) -> int:
    """Returns the picture size: as asked for, as the model fixes it, or the default."""
    fixed = model.input_shape[1] if isinstance(model.input_shape, tuple) else None
    if wanted is not None and fixed is not None and wanted != fixed:
        raise BackboneError(
            f"image_size={wanted}, but this model takes only pictures of {fixed} px."
        )
    return wanted or fixed or default
