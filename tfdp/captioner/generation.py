"""Captions by greedy or beam search, through the samplers of keras-nlp."""

from __future__ import annotations

from typing import Any

import keras_nlp
import numpy as np
from keras import ops

from tfdp import checks
from tfdp.captioner.attention import Cache
from tfdp.captioner.captioner_config import PAD_ID, CaptionerConfig
from tfdp.captioner.towers import TextDecoder

#: Large enough to rule a token out in float32, small enough to keep sums finite.
_NEVER = -1e9


def checked_prompt(
    config: CaptionerConfig, max_length: int, beam_width: int, prompt: Any
) -> tuple[int, ...]:
    """The prompt as a tuple of ids, once the arguments of a search are known to be sound.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range.
    """
    checks.positive_int("beam_width", beam_width)
    if not 2 <= checks.whole("max_length", max_length) <= config.max_length:
        raise ValueError(
            f"max_length must be between 2 and the model's {config.max_length}, got {max_length}."
        )
    ids = tuple(np.atleast_1d(config.start_id if prompt is None else prompt).tolist())
    if not 1 <= len(ids) < max_length:
        raise ValueError(
            f"prompt must hold between 1 and max_length - 1 = {max_length - 1} ids, got {len(ids)}."
        )
    if not all(isinstance(i, int) and 0 <= i < config.vocab_size for i in ids):
        raise ValueError(f"prompt must hold ids below {config.vocab_size}, got {ids}.")
    return ids


def search(
    decoder: TextDecoder, memory: Any, max_length: int, beam_width: int, prompt: tuple[int, ...]
) -> Any:
    """The likeliest caption that the search finds for each picture.

    Args:
        decoder: The text decoder of a captioner.
        memory: The tokens of B pictures [B, N, D].
        max_length: Ids of a caption, start and end included.
        beam_width: Captions kept at a time; 1 is greedy search.
        prompt: Ids that every caption begins with, fewer than `max_length`.

    Returns:
        int32 ids [B, max_length]: the prompt, the new tokens up to the end id, then padding.
    """
    end_id = decoder.config.end_id
    pictures = decoder.project(memory)
    batch = ops.shape(memory)[0]
    ids = ops.concatenate(
        [
            ops.broadcast_to(ops.convert_to_tensor(prompt, "int32"), (batch, len(prompt))),
            ops.full((batch, max_length - len(prompt)), PAD_ID, "int32"),
        ],
        axis=1,
    )  # [B, L]
    cache = decoder.empty_cache(batch, max_length)
    if len(prompt) > 1:
        # All of the prompt but its last token, which the first step of the search reads.
        _, cache = decoder.extend(ids[:, : len(prompt) - 1], pictures, cache, 0)

    def next_token(ids: Any, cache: tuple[Cache, ...], index: Any) -> tuple[Any, Any, Any]:
        last = ops.slice(ids, (0, index - 1), (ops.shape(ids)[0], 1))
        logits, cache = decoder.extend(last, pictures, cache, index - 1)
        ended = ops.any(ids[:, len(prompt) :] == end_id, axis=-1, keepdims=True)
        # A caption that has ended goes on as padding with probability 1: its score stays.
        is_pad = ops.arange(decoder.config.vocab_size) == PAD_ID
        return ops.where(ended, ops.where(is_pad, 0.0, _NEVER), logits[:, 0]), None, cache

    if beam_width == 1:
        sampler = keras_nlp.samplers.GreedySampler()
    else:
        sampler = keras_nlp.samplers.BeamSampler(num_beams=beam_width)
    # The prompt is masked: an end id inside it does not stop the search.
    fixed = ops.broadcast_to(ops.arange(max_length) < len(prompt), (batch, max_length))
    return sampler(next_token, ids, cache, index=len(prompt), mask=fixed, stop_token_ids=(end_id,))
