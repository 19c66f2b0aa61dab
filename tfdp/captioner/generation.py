"""Captions by greedy or beam search, through the samplers of keras-nlp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras_nlp
import numpy as np
from keras import ops

from tfdp import checks
from tfdp.captioner.attention import Cache
from tfdp.captioner.config import PAD_ID
from tfdp.captioner.graphs import run_as_graph
from tfdp.captioner.inputs import checked_images

if TYPE_CHECKING:
    from tfdp.captioner.captioner import Captioner

#: Large enough to rule a token out in float32, small enough to keep sums finite.
_NEVER = -1e9


def generate(
    model: Captioner,
    images: Any,
    max_length: int | None = None,
    beam_width: int = 1,
    prompt: Any = None,
) -> Any:
    """Writes a caption for each picture, which is encoded once.

    Greedy search takes the likeliest next token, over the whole vocabulary. Beam search keeps
    the `beam_width` likeliest captions; a caption that has ended keeps its score. Called
    eagerly it runs as one compiled graph; inside a `tf.function` it becomes part of that one.

    Args:
        model: the captioner.
        images: float [B, S, S, 3], normalised as in training.
        max_length: longest caption in ids, start and end included; at most the model's
            `max_length`, which is the default.
        beam_width: captions kept at a time; 1 is greedy search.
        prompt: ids that every caption begins with, the start id first; None means just that.

    Returns:
        int32 ids [B, max_length]: the prompt, the new tokens up to the end id, then padding.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: an argument is out of range.
    """
    length = model.config.max_length if max_length is None else max_length
    start = _check(model, length, beam_width, prompt)
    return run_as_graph(
        model,
        ("generate", length, beam_width, start),
        lambda x: _search(model, x, length, beam_width, start),
        checked_images(images, model.config.image_size),
    )


def _check(model: Captioner, length: int, beam_width: int, prompt: Any) -> tuple[int, ...]:
    """The prompt as a tuple, once all arguments are known to be sound."""
    checks.positive_int("beam_width", beam_width)
    if not 2 <= checks.whole("max_length", length) <= model.config.max_length:
        raise ValueError(
            f"max_length must be between 2 and the model's {model.config.max_length}, got {length}."
        )
    ids = tuple(np.atleast_1d(model.config.start_id if prompt is None else prompt).tolist())
    if not 1 <= len(ids) < length:
        raise ValueError(
            f"prompt must hold between 1 and max_length - 1 = {length - 1} ids, got {len(ids)}."
        )
    if not all(isinstance(i, int) and 0 <= i < model.config.vocab_size for i in ids):
        raise ValueError(f"prompt must hold ids below {model.config.vocab_size}, got {ids}.")
    return ids


def _search(
    model: Captioner, images: Any, length: int, beam_width: int, start: tuple[int, ...]
) -> Any:
    end_id, decoder = model.config.end_id, model.decoder
    memory = decoder.project(model.encode(images))
    batch = ops.shape(images)[0]
    ids = ops.concatenate(
        [
            ops.broadcast_to(ops.convert_to_tensor(start, "int32"), (batch, len(start))),
            ops.full((batch, length - len(start)), PAD_ID, "int32"),
        ],
        axis=1,
    )  # [B, L]
    cache = decoder.empty_cache(batch, length)
    if len(start) > 1:
        # All of the prompt but its last token, which the first step of the search reads.
        _, cache = decoder.extend(ids[:, : len(start) - 1], memory, cache, 0)

    def next_token(ids: Any, cache: tuple[Cache, ...], index: Any) -> tuple[Any, Any, Any]:
        last = ops.slice(ids, (0, index - 1), (ops.shape(ids)[0], 1))
        logits, cache = decoder.extend(last, memory, cache, index - 1)
        ended = ops.any(ids[:, len(start) :] == end_id, axis=-1, keepdims=True)
        # A caption that has ended goes on as padding with probability 1: its score stays.
        is_pad = ops.arange(model.config.vocab_size) == PAD_ID
        return ops.where(ended, ops.where(is_pad, 0.0, _NEVER), logits[:, 0]), None, cache

    if beam_width == 1:
        sampler = keras_nlp.samplers.GreedySampler()
    else:
        sampler = keras_nlp.samplers.BeamSampler(num_beams=beam_width)
    # The prompt is masked: an end id inside it does not stop the search.
    fixed = ops.broadcast_to(ops.arange(length) < len(start), (batch, length))
    return sampler(next_token, ids, cache, index=len(start), mask=fixed, stop_token_ids=(end_id,))
