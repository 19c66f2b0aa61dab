"""Layers through which one example reaches another's loss."""

from __future__ import annotations

import keras

from tfdp.clipping.errors import UnsupportedLayerError


def refuse_mixing_layers(model: keras.Model) -> None:
    """Raises if a layer mixes the examples of a batch.

    Batch normalization is accepted where it is frozen (``layer.trainable = False``): it then
    uses its stored moments, in training too.

    Raises:
      UnsupportedLayerError: Names the layer and the way out.
    """
    for layer in model._flatten_layers(include_self=True, recursive=True):
        described = f"{type(layer).__name__} {layer.name!r}"
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise UnsupportedLayerError(
                f"{described} computes its moments over the batch, so an example's gradient "
                "cannot be bounded. Freeze it (layer.trainable = False, before compile), or "
                "use GroupNormalization or LayerNormalization."
            )
        if isinstance(layer, keras.layers.LayerNormalization) and layer.built:
            axes = layer.axis if isinstance(layer.axis, list) else [layer.axis]
            if 0 in axes:
                raise UnsupportedLayerError(
                    f"{described} normalizes over the batch axis (axis={axes}), so examples mix. "
                    "Choose axes without 0."
                )
        if layer.activity_regularizer is not None:
            raise UnsupportedLayerError(
                f"{described} has an activity regularizer, a loss over the whole batch that "
                "cannot be clipped by example. Remove it, or add the penalty to the loss."
            )
