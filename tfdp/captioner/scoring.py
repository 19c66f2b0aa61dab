"""How well captions fit pictures: the score behind zero-shot labels and ARO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfdp.captioner.config import PAD_ID
from tfdp.captioner.graphs import run_as_graph
from tfdp.captioner.inputs import checked_ids, checked_images

if TYPE_CHECKING:
    from tfdp.captioner.captioner import Captioner


def score_captions(model: Captioner, images: Any, token_ids: Any, chunk_size: int = 128) -> Any:
    """Mean negative log-likelihood, in nats per token, of captions given pictures.

    The mean runs over all ids after the first up to the last that is not padding, the end
    id included; the smallest score is the best caption. A picture is encoded once, however
    many captions it meets.

    Args:
        model: the captioner.
        images: float [B, S, S, 3], normalised as in training.
        token_ids: int [C, L], captions that every picture meets, or int [B, C, L], each
            picture's own. They begin with the start id and are filled up with 0.
        chunk_size: pairs of a picture and a caption that are scored at a time, at least one
            caption for all pictures; bounds the memory.

    Returns:
        [B, C] scores.

    Raises:
        ValueError: `token_ids` has another shape or type, or a caption has no target.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
    images = checked_images(images, model.config.image_size)
    token_ids = checked_ids("token_ids", token_ids, (2, 3), model.config.max_length)
    if tf.executing_eagerly():
        _check_targets(np.asarray(token_ids), model.config.vocab_size)
    if 0 in (images.shape[0], token_ids.shape[-2]):
        return ops.zeros((images.shape[0], token_ids.shape[-2]))
    return run_as_graph(
        model,
        ("score", chunk_size, len(token_ids.shape)),
        lambda x, ids: _score(model, x, ids, chunk_size),
        images,
        token_ids,
    )


def _check_targets(token_ids: np.ndarray, vocab_size: int) -> None:
    if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < vocab_size:
        raise ValueError(f"token_ids must lie between 0 and {vocab_size - 1}.")
    empty = np.argwhere(~(token_ids[..., 1:] != PAD_ID).any(axis=-1))
    if len(empty):
        raise ValueError(
            f"token_ids: caption {tuple(empty[0].tolist())} has nothing after its first id "
            f"({len(empty)} such captions)."
        )


def _score(model: Captioner, images: Any, token_ids: Any, chunk_size: int) -> Any:
    memory = model.decoder.project(model.encode(images))
    batch = ops.shape(images)[0]
    captions, length = ops.shape(token_ids)[-2:]
    step = _captions_at_a_time(chunk_size, batch, captions)
    missing = -captions % step
    # Chunks first: [K, step, L] or [K, B, step, L].
    shared = len(token_ids.shape) == 2
    token_ids = ops.pad(token_ids, [[0, 0]] * (not shared) + [[0, missing], [0, 0]])
    if shared:
        chunks = ops.reshape(token_ids, (-1, step, length))
    else:
        chunks = ops.reshape(token_ids, (batch, -1, step, length))
        chunks = ops.transpose(chunks, (1, 0, 2, 3))

    def score_chunk(ids: Any) -> Any:
        ids = ops.broadcast_to(ids, (batch, step, length))
        flat = ops.reshape(ids, (-1, length))  # [B * step, L]
        cache = model.decoder.empty_cache(ops.shape(flat)[0], length - 1)
        logits, _ = model.decoder.extend(flat[:, :-1], memory, cache, 0)
        return ops.reshape(mean_nll(logits, flat[:, 1:]), (-1, step))

    kind = tf.as_dtype(keras.backend.result_type(model.compute_dtype, "float32"))
    scores = tf.map_fn(score_chunk, chunks, fn_output_signature=kind)  # [K, B, step]
    return ops.reshape(ops.transpose(scores, (1, 0, 2)), (batch, -1))[:, :captions]


def _captions_at_a_time(chunk_size: int, batch: Any, captions: Any) -> Any:
    """A Python number where the sizes are known, which XLA needs; else a tensor."""
    if isinstance(batch, int) and isinstance(captions, int):
        return max(1, min(chunk_size // max(1, batch), captions))
    return ops.maximum(1, ops.minimum(chunk_size // ops.maximum(1, batch), captions))


def mean_nll(logits: Any, targets: Any) -> Any:
    """Mean negative log-likelihood of each row, over the targets up to the last real one.

    Args:
        logits: [B, T, V].
        targets: int32 [B, T], filled up with 0. A 0 between real ids counts as a target.

    Returns:
        [B], in nats per target; NaN where a row has none.
    """
    picked = ops.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = ops.logsumexp(logits, axis=-1) - picked  # [B, T]
    position = ops.arange(1, ops.shape(targets)[1] + 1, dtype="int32")
    count = ops.max(ops.where(targets != PAD_ID, position, 0), axis=-1, keepdims=True)  # [B, 1]
    real = ops.cast(position <= count, nll.dtype)
    return ops.sum(nll * real, axis=-1) / ops.cast(count[:, 0], nll.dtype)
