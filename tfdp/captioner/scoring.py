"""How well captions fit pictures: the score behind zero-shot labels and ARO."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfdp.captioner.captioner_config import PAD_ID
from tfdp.captioner.towers import TextDecoder


def check_targets(token_ids: np.ndarray, vocab_size: int) -> None:
    """Checks that every caption can be scored.

    Raises:
        ValueError: An id is outside the vocabulary, or a caption has no target.
    """
    if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < vocab_size:
        raise ValueError(f"token_ids must lie between 0 and {vocab_size - 1}.")
    empty = np.argwhere(~(token_ids[..., 1:] != PAD_ID).any(axis=-1))
    if len(empty):
        raise ValueError(
            f"token_ids: caption {tuple(empty[0].tolist())} has nothing after its first id "
            f"({len(empty)} such captions)."
        )


def score(decoder: TextDecoder, memory: Any, token_ids: Any, pairs_at_once: int) -> Any:
    """Mean negative log-likelihood of captions given pictures.

    Args:
        decoder: The text decoder of a captioner.
        memory: The tokens of B pictures [B, N, D].
        token_ids: int32 [C, L], captions that every picture meets, or [B, C, L].
        pairs_at_once: Pairs of a picture and a caption in memory at a time.

    Returns:
        [B, C], in nats per token.
    """
    pictures = decoder.project(memory)
    batch = ops.shape(memory)[0]
    captions, length = ops.shape(token_ids)[-2:]
    group = _captions_at_once(pairs_at_once, batch, captions)
    missing = -captions % group
    # Groups first: [K, group, L] or [K, B, group, L].
    shared = len(token_ids.shape) == 2
    token_ids = ops.pad(token_ids, [[0, 0]] * (not shared) + [[0, missing], [0, 0]])
    if shared:
        groups = ops.reshape(token_ids, (-1, group, length))
    else:
        groups = ops.reshape(token_ids, (batch, -1, group, length))
        groups = ops.transpose(groups, (1, 0, 2, 3))

    def score_group(ids: Any) -> Any:
        ids = ops.broadcast_to(ids, (batch, group, length))
        flat = ops.reshape(ids, (-1, length))  # [B * group, L]
        cache = decoder.empty_cache(ops.shape(flat)[0], length - 1)
        logits, _ = decoder.extend(flat[:, :-1], pictures, cache, 0)
        return ops.reshape(mean_nll(logits, flat[:, 1:]), (-1, group))

    kind = tf.as_dtype(keras.backend.result_type(decoder.compute_dtype, "float32"))
    scores = tf.map_fn(score_group, groups, fn_output_signature=kind)  # [K, B, group]
    return ops.reshape(ops.transpose(scores, (1, 0, 2)), (batch, -1))[:, :captions]


def _captions_at_once(pairs_at_once: int, batch: Any, captions: Any) -> Any:
    """A Python number where the sizes are known, which XLA needs; else a tensor."""
    if isinstance(batch, int) and isinstance(captions, int):
        return max(1, min(pairs_at_once // max(1, batch), captions))
    return ops.maximum(1, ops.minimum(pairs_at_once // ops.maximum(1, batch), captions))


def mean_nll(logits: Any, targets: Any) -> Any:
    """Mean negative log-likelihood of each row, over the targets up to the last real one.

    Args:
        logits: [B, T, V].
        targets: int32 [B, T], padded with 0. A 0 between real ids counts as a target.

    Returns:
        [B], in nats per target; NaN where a row has none.
    """
    picked = ops.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = ops.logsumexp(logits, axis=-1) - picked  # [B, T]
    position = ops.arange(1, ops.shape(targets)[1] + 1, dtype="int32")
    count = ops.max(ops.where(targets != PAD_ID, position, 0), axis=-1, keepdims=True)  # [B, 1]
    real = ops.cast(position <= count, nll.dtype)
    return ops.sum(nll * real, axis=-1) / ops.cast(count[:, 0], nll.dtype)
