"""Keras layers whose calls are replaced while the model runs, to keep examples apart.

Ids that a table does not hold make their own example NaN, which is then skipped. ``Equalization``
takes one histogram over the whole batch, and ``RandAugment`` holds an ``Equalization`` and picks it
now and then: here every example has a histogram of its own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.layers.preprocessing.image_preprocessing import base_image_preprocessing_layer

from tfdp.clipping.examples import with_mask_of
from tfdp.clipping.rejections import UnsupportedLayerError
from tfdp.clipping.rules.registry import at_least_float32, replaced

_BY_KERAS = keras.layers.Equalization._equalize_channel
_ImageLayer = base_image_preprocessing_layer.BaseImagePreprocessingLayer


def tables_of(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model whose call is Keras's own lookup of ids in a table."""
    calls = (keras.layers.Embedding.call, keras.layers.ReversibleEmbedding.call)
    return [layer for layer in model._flatten_layers() if type(layer).call in calls]


@contextlib.contextmanager
def impossible_ids_as_nan(tables: Iterable[keras.layers.Embedding]) -> Iterator[None]:
    """Within the block, an id outside a table reads as NaN.

    TensorFlow stops at such an id on CPUs, and XLA reads another entry. NaN makes the gradient of
    its example not finite, so that the example contributes zero and is counted.
    """
    with contextlib.ExitStack() as stack:
        for table in tables:
            stack.enter_context(replaced(table, "call", _marked(table, table.call)))
        yield


def _marked(table: keras.layers.Embedding, call: Callable) -> Callable:
    @functools.wraps(call)
    def marked(inputs, *args, reverse=False, **kwargs):
        if reverse:  # tied: logits from the table, no lookup
            return call(inputs, *args, reverse=True, **kwargs)
        ids = tf.convert_to_tensor(inputs)
        ids = ids if ids.dtype.is_integer else tf.cast(ids, tf.int32)  # as Keras does
        size = tf.cast(table.input_dim, ids.dtype)
        known = (ids >= -size) & (ids < size)  # Keras counts negative ones from the end
        outputs = call(tf.where(known, ids, tf.zeros([], ids.dtype)), *args, **kwargs)
        nan = tf.constant(float("nan"), outputs.dtype)
        shown = tf.where(known[..., tf.newaxis], outputs, nan)
        return with_mask_of(outputs, shown)  # which some layers set in their call

    return marked


def image_layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that Keras takes for image preprocessing."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, _ImageLayer)]


@contextlib.contextmanager
def images_kept_apart(layers: Iterable[keras.layers.Layer]) -> Iterator[None]:
    """Within the block, no image layer lets one image of a batch change another.

    ``Equalization`` takes a histogram of every image. Layers that would take the batch for a
    single image are rejected.

    Args:
      layers: Image layers; see ``image_layers_of``.
    """
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(replaced(layer, "call", _batched(layer, layer.call)))
            if getattr(type(layer), "_equalize_channel", None) is _BY_KERAS:
                alone = functools.partial(_equalize_channel, layer)
                stack.enter_context(replaced(layer, "_equalize_channel", alone))
        yield


def _batched(layer: keras.layers.Layer, call: Callable) -> Callable:
    """Returns the call, which raises if Keras would take the batch for one image."""

    @functools.wraps(call)
    def checked(data, *args, **kwargs):
        images: Any = data.get("images") if isinstance(data, dict) else data
        if tf.is_tensor(images) and images.shape.rank == 3:
            raise UnsupportedLayerError(
                f"{type(layer).__name__} {layer.name!r} takes inputs of rank 3 for a single image "
                f"[height, width, channels], got {images.shape}: it would mix the examples of the "
                "batch. Give it images of rank 4, such as [B, H, W, 1] for gray ones."
            )
        return call(data, *args, **kwargs)

    return checked


def _equalize_channel(
    layer: keras.layers.Equalization, channel: tf.Tensor, value_range: Any
) -> tf.Tensor:
    """Equalizes one channel ``[B, H, W]``, every example by its own histogram.

    The numbers are those of Keras's method of this name for a batch of that example alone.
    """
    bins, size = layer.bins, tf.shape(channel)[0]
    first = bins * tf.range(size)[:, tf.newaxis]  # [B, 1]: where an example's histogram begins
    scaled = layer._scale_values(channel, value_range, (0, 255))
    pixels = at_least_float32(tf.reshape(scaled, [size, -1]))  # [B, H * W]

    counted = tf.cast(tf.cast(pixels, tf.float32) * (bins - 1) / 255, tf.int32)
    counted = tf.clip_by_value(counted, 0, bins - 1) + first
    counts = tf.math.unsorted_segment_sum(tf.ones_like(counted), counted, size * bins)
    counts = tf.reshape(counts, [size, bins])

    # From counts to the levels that spread them evenly.
    below = tf.cumsum(counts, axis=1)
    least = tf.reduce_min(tf.where(below > 0, below, below[:, -1:]), axis=1, keepdims=True)
    spread = tf.maximum(below[:, -1:] - least, 1)
    levels = tf.clip_by_value(tf.round((below - least) * 255 / spread), 0, 255)

    read = tf.cast(tf.clip_by_value(pixels / 255 * (bins - 1), 0, bins - 1), tf.int32) + first
    spread_out = tf.gather(tf.cast(tf.reshape(levels, [-1]), pixels.dtype), read)
    one_shade = tf.math.count_nonzero(counts, axis=1, keepdims=True) <= 1  # stays as it is
    equalized = tf.reshape(tf.where(one_shade, pixels, spread_out), tf.shape(channel))
    return layer._scale_values(tf.ensure_shape(equalized, channel.shape), (0, 255), value_range)
