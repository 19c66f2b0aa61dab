"""One forward pass with every variable replaced by a given value, and its losses by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.example_losses import losses_one_by_one
from tfdp.clipping.patched_layers import (
    image_layers_of,
    images_kept_apart,
    impossible_ids_as_nan,
    tables_of,
)

# Losses are multiplied by this number where layers compute in float16, whose smallest numbers are
# too large for many gradients. A constant, not adapted to what overflows: that is private.
FLOAT16_LOSS_SCALE = 128.0


class Forward:
    """The model and its loss as a function of the values of all variables.

    Attributes:
      trainable: The variables whose gradients are clipped.
      state: The other variables that the model reads.
      tables: The layers that look up ids in a table.
      layers: The layers that lead to trainable weights, the model itself among them.
      half_precision: Whether any of them computes in half precision.
      loss_scale: What gradients are scaled by on their way through the model.
    """

    def __init__(self, model: keras.Model, loss: Callable):
        self.model = model
        self.loss = loss
        self.trainable = list(model.trainable_variables)
        self.seeds = _seed_states(model)
        known = {id(v) for v in self.trainable + self.seeds}
        own_metrics = {id(v) for metric in model.metrics for v in metric.variables}
        self.state = [v for v in model.variables if id(v) not in known | own_metrics]
        self.layers = [layer for layer in model._flatten_layers() if layer.trainable_variables]
        dtypes = {layer.compute_dtype for layer in self.layers}
        self.half_precision = bool(dtypes & {"float16", "bfloat16"})
        self.loss_scale = FLOAT16_LOSS_SCALE if "float16" in dtypes else 1.0
        self.tables = tables_of(model)
        self._images = image_layers_of(model)
        self._takes_training = model._call_has_training_arg

    def mapping(self, weights: Sequence, state: Sequence, seed: tf.Tensor) -> list:
        """Pairs every variable with its value; each random layer gets a seed of its own."""
        seeds = [
            tf.cast(tf.random.experimental.stateless_fold_in(seed, i), variable.dtype)
            for i, variable in enumerate(self.seeds)
        ]
        return [
            *zip(self.trainable, weights, strict=True),
            *zip(self.state, state, strict=True),
            *zip(self.seeds, seeds, strict=True),
        ]

    def outputs(self, x: Any) -> Any:
        """Returns the model's outputs in training; call it inside a stateless scope."""
        with impossible_ids_as_nan(self.tables), images_kept_apart(self._images):
            return self.model(x, training=True) if self._takes_training else self.model(x)

    def losses(self, x: Any, y: Any, sample_weight: Any) -> tuple[tf.Tensor, Any]:
        """Returns (losses ``[B]``, outputs); call it inside a stateless scope."""
        outputs = self.outputs(x)
        return self.loss(y, outputs, sample_weight), outputs

    def loss_of(self, y: Any, outputs: Any, sample_weight: Any, compiled: bool) -> tf.Tensor:
        """Returns the losses ``[B]``; those of functions that users wrote, one by one."""
        if getattr(self.loss, "by_user", True):
            return losses_one_by_one(self.loss, y, outputs, sample_weight, compiled)
        return self.loss(y, outputs, sample_weight)

    def graph_of_loss(self, y: Any, outputs: Any, sample_weight: Any) -> tf.Graph | None:
        """Returns the graph of a loss that users wrote, for one example; None for Keras's own.

        Args:
          y: As for ``loss_of``; shapes and dtypes count.
          outputs: The same.
          sample_weight: The same.
        """
        if not getattr(self.loss, "by_user", True):
            return None
        specs = keras.tree.map_structure(
            lambda leaf: (
                tf.TensorSpec([1, *leaf.shape[1:]], leaf.dtype) if tf.is_tensor(leaf) else leaf
            ),
            (y, outputs, sample_weight),
        )
        return tf.function(self.loss, autograph=False).get_concrete_function(*specs).graph


def _seed_states(model: keras.Model) -> list[keras.Variable]:
    found = {}
    for layer in model._flatten_layers(include_self=True, recursive=True):
        for generator in layer._seed_generators:
            found[id(generator.state)] = generator.state
    return list(found.values())
