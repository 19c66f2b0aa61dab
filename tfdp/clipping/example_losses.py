"""One loss value per example, whatever reduction the Keras loss asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import compile_utils

from tfdp.clipping.examples import batch_of_one, map_examples
from tfdp.clipping.rejections import ScalarLossError
from tfdp.clipping.rules.registry import replaced


def per_example_loss(
    loss: Any, loss_weights: Any = None, output_names: Any = None
) -> compile_utils.CompileLoss:
    """Turns what ``compile`` takes as ``loss`` into a function with one value per example.

    The returned object is called with (y_true, y_pred, sample_weight), nested like the model's
    outputs, and returns ``[B]``: for every example the mean over its real tokens (not masked by
    Keras masks, not the ignored class, not of weight zero), times its weights. This is what Keras
    itself gives for a batch that holds the example alone.

    Args:
      loss: A loss name, function or object, or a nested structure of them.
      loss_weights: As in ``keras.Model.compile``.
      output_names: Names of the model's outputs, for losses in a dict.

    Raises:
      ValueError: No loss is given.
      ScalarLossError: On the call, if a loss returns no value per example.
    """
    if loss is None:
        raise ValueError(
            "loss=None: private training needs a loss that is given to compile(). Losses that "
            "layers add by add_loss() have no value per example."
        )
    wrapped = keras.tree.map_structure(lambda one: None if one is None else _PerExample(one), loss)
    losses = _LossesByExample(wrapped, loss_weights, output_names=output_names)
    losses.by_user = not all(map(_is_of_keras, keras.tree.flatten(loss)))
    return losses


def losses_one_by_one(
    loss: Callable, y_true: Any, y_pred: Any, sample_weight: Any, compiled: bool
) -> tf.Tensor:
    """Returns ``[B]``: the loss of every example as in a batch that holds nothing else.

    Trying a function on whole batches cannot show that it keeps examples apart: it may mix them for
    values that were not tried. A function that is given one example cannot.

    Args:
      loss: ``(y_true, y_pred, sample_weight) -> [B]``; see ``per_example_loss``.
      y_true: Targets, nested; every leaf ``[B, ...]``.
      y_pred: The model's outputs, nested.
      sample_weight: None, ``[B]`` or nested like ``y_true``.
      compiled: Whether XLA compiles the call; see ``map_examples``.
    """
    fields = (y_true, y_pred, sample_weight)
    leaves = keras.tree.flatten(fields)
    own = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if own[0].shape[0] == 1:
        return loss(*fields)
    masks = {
        i: m
        for i, leaf in enumerate(own)
        if (m := keras.src.backend.get_keras_mask(leaf)) is not None
    }
    # From these the losses of Keras are computed, if they get probabilities.
    logits = {i: leaf._keras_logits for i, leaf in enumerate(own) if hasattr(leaf, "_keras_logits")}

    def one(example: tuple[list[tf.Tensor], dict, dict]) -> tf.Tensor:
        values, kept, before = example
        batches = [batch_of_one(value, kept.get(i)) for i, value in enumerate(values)]
        for i, own_logits in before.items():
            batches[i]._keras_logits = own_logits[tf.newaxis]
        found = iter(batches)
        nested = keras.tree.pack_sequence_as(
            fields, [next(found) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        )
        return loss(*nested)[0]

    return map_examples(one, (own, masks, logits), compiled)


def _is_of_keras(loss: Any) -> bool:
    """Whether Keras wrote what is computed, which then is known to keep examples apart."""
    loss = keras.losses.get(loss)  # names may be registered by users
    parts = (loss, getattr(loss, "fn", loss))
    return loss is None or all(getattr(p, "__module__", "").startswith("keras.") for p in parts)


class _LossesByExample(compile_utils.CompileLoss):
    """Keras's own matching of losses with outputs, without its running mean of every loss.

    Attributes:
      by_user: Whether a function that is not Keras's own is among the losses.
    """

    by_user = False

    def build(self, y_true, y_pred):
        # Keras makes the means on the first call. That is inside a trace, where a variable
        # cannot be made.
        with replaced(compile_utils.metrics_module, "Mean", lambda name: None):
            super().build(y_true, y_pred)

    def call(self, y_true, y_pred, sample_weight=None):
        _check_weights(sample_weight, y_pred)
        return super().call(y_true, y_pred, sample_weight)

    @property
    def variables(self):
        return []


class _PerExample(keras.losses.Loss):
    """A Keras loss reduced over everything but the batch axis."""

    def __init__(self, loss: Any):
        name = getattr(loss, "name", None) or getattr(loss, "__name__", None) or str(loss)
        super().__init__(name=name, reduction=None, dtype=getattr(loss, "dtype", None))
        self._loss = loss

    def __call__(self, y_true, y_pred, sample_weight=None):
        loss = compile_utils.get_loss(self._loss, y_true, y_pred)
        in_mask = _keras_mask(y_pred)
        y_pred = keras.tree.map_structure(lambda y: tf.cast(y, self.dtype), y_pred)
        y_true = keras.tree.map_structure(lambda y: tf.cast(y, self.dtype), y_true)
        y_true, impossible = without_impossible_classes(loss, y_true, y_pred)
        values = _called(loss, self.name, y_true, y_pred)
        _check_per_example(self.name, values, y_pred)
        masks = [mask for mask in (in_mask, _keras_mask(values)) if mask is not None]
        return mean_over_tokens(values, sample_weight, masks, impossible)


def _check_weights(sample_weight: Any, y_pred: Any) -> None:
    """Raises ``ValueError`` for nested weights that are not nested like the model's outputs."""
    if not keras.tree.is_nested(sample_weight):
        return
    given, outputs = (
        {path for path, _ in keras.tree.flatten_with_path(nested)}
        for nested in (sample_weight, y_pred)
    )
    if given != outputs:
        named = [".".join(map(str, path)) or "the only one" for path in sorted(outputs, key=repr)]
        raise ValueError(
            "sample_weight must be one array [B], or be nested like the model's outputs "
            f"({', '.join(named)}) with None for those without weights, got "
            f"{keras.tree.map_structure(lambda leaf: leaf is not None, sample_weight)}."
        )


def _called(loss: Any, name: str, y_true: Any, y_pred: Any) -> tf.Tensor:
    """Returns the loss of every token.

    Raises:
      ValueError: Targets and outputs do not go together, or the loss fails otherwise.
    """
    try:
        return loss.call(y_true, y_pred)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        targets, outputs = (
            ", ".join(str(tuple(leaf.shape)) for leaf in keras.tree.flatten(nested))
            for nested in (y_true, y_pred)
        )
        raise ValueError(
            f"The loss {name!r} cannot be computed from targets y of shape {targets} and outputs "
            f"of shape {outputs}: {error}"
        ) from error


def without_impossible_classes(
    loss: Any, y_true: tf.Tensor, y_pred: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Replaces class numbers that no output stands for, and says where they stood.

    TensorFlow stops at them on CPUs and computes NaN elsewhere. Whether a run ends must not depend
    on one example: its loss is made NaN everywhere, so that it is skipped and counted.
    """
    name = getattr(loss, "name", "")
    if name != "sparse_categorical_crossentropy" and not isinstance(
        loss, keras.losses.SparseCategoricalCrossentropy
    ):
        return y_true, None
    settings = getattr(loss, "_fn_kwargs", {})
    classes = y_pred.shape[settings.get("axis", -1)]
    impossible = ~((y_true >= 0) & (y_true < classes))
    ignored = settings.get("ignore_class")
    if ignored is not None:
        impossible &= y_true != tf.cast(ignored, y_true.dtype)
    y_true = tf.where(impossible, tf.zeros([], y_true.dtype), y_true)
    if y_true.shape.rank == y_pred.shape.rank:  # as [..., 1]
        impossible = tf.squeeze(impossible, -1)
    return y_true, impossible


def mean_over_tokens(
    values: tf.Tensor,
    sample_weight: tf.Tensor | None,
    masks: list[tf.Tensor],
    impossible: tf.Tensor | None = None,
) -> tf.Tensor:
    """Averages ``[B, ...]`` over each example's real tokens, after weighting: ``[B]``.

    Args:
      values: Loss of every token.
      sample_weight: ``[B]``, or any leading axes of ``values``; a zero marks no real token.
      masks: Booleans over leading axes of ``values``; False marks no real token.
      impossible: Booleans like ``values``: real tokens whose example's loss is to be NaN.
    """
    real = tf.ones_like(values, dtype=tf.bool)
    for mask in masks:
        real &= _expand(tf.cast(mask, tf.bool), values)
    if sample_weight is not None:
        weight = _expand(tf.cast(sample_weight, values.dtype), values)
        real &= weight != 0
        values = values * weight
    # Select before summing: what stands at masked tokens may be NaN.
    values = tf.where(real, values, 0)
    axes = list(range(1, values.shape.rank))
    count = tf.reduce_sum(tf.cast(real, values.dtype), axis=axes)
    mean = tf.reduce_sum(values, axis=axes) / tf.maximum(count, 1)
    if impossible is None:
        return mean
    spoiled = tf.reduce_any(real & impossible, axis=axes)
    return mean * tf.where(spoiled, tf.constant(float("nan"), mean.dtype), 1)


def _expand(weight: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Appends axes to a weight over the leading axes of values, and broadcasts it."""
    if weight.shape.rank == values.shape.rank + 1 and weight.shape[-1] == 1:
        weight = tf.squeeze(weight, axis=-1)
    if weight.shape.rank > values.shape.rank:
        raise ValueError(
            f"sample_weight or mask of shape {weight.shape} does not fit a loss of shape "
            f"{values.shape}: give one weight per example, or one per token."
        )
    missing = values.shape.rank - weight.shape.rank
    weight = tf.reshape(weight, tf.concat([tf.shape(weight), [1] * missing], axis=0))
    return tf.broadcast_to(weight, tf.shape(values))


def _keras_mask(tensor: Any) -> tf.Tensor | None:
    return getattr(tensor, "_keras_mask", None)


def _check_per_example(name: str, values: tf.Tensor, y_pred: Any) -> None:
    batch = keras.tree.flatten(y_pred)[0].shape[0]
    shape = tuple(getattr(values, "shape", ()))
    if not shape or (batch is not None and shape[0] != batch):
        raise ScalarLossError(
            f"The loss {name!r} returned shape {shape} for a batch of {batch}: private "
            "training needs one value per example, since gradients are clipped one by one. "
            "Return the loss before averaging over the batch (shape [batch] or "
            "[batch, tokens]); the reduction is done for you."
        )
