"""Token ids that a table has no row for: their examples are left out, wherever it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator

import keras
import tensorflow as tf

from tfdp.clipping.rows import with_mask_of
from tfdp.clipping.rules.registry import replaced


def is_plain_table(layer: keras.layers.Layer) -> bool:
    """Whether a layer's call is Keras's own lookup of ids in a table."""
    calls = (keras.layers.Embedding.call, keras.layers.ReversibleEmbedding.call)
    return type(layer).call in calls


@contextlib.contextmanager
def impossible_ids_as_nan(tables: Iterable[keras.layers.Embedding]) -> Iterator[None]:
    """Within the block, an id outside a table reads as NaN.

    TensorFlow stops at such an id on CPUs, and XLA reads another row. NaN makes the gradient of
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
