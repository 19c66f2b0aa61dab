"""The floor that a captioner has to beat: word frequencies of public text, no picture."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfdp.captioner.caption_loss import CaptionLoss, score_captions
from tfdp.captioner.config import PAD_ID
from tfdp.data import ExampleSource


def unigram_log_probabilities(
    public_tokens: Iterable[npt.ArrayLike], vocabulary_size: int
) -> np.ndarray:
    """Log-frequencies of token ids in public text, with add-one (Laplace) smoothing.

    Args:
        public_tokens: the target ids of each public text (end token included); 0 is padding and is
            not counted. Counting private captions here would release them without accounting.
        vocabulary_size: number of ids, V.

    Returns:
        float64 `[V]`, natural logarithms; the padding id has -inf, since it is never a target.

    Raises:
        ValueError: if an id lies outside `[0, V)`.
    """
    counts = np.zeros(vocabulary_size, dtype=np.int64)
    for tokens in public_tokens:
        ids = np.asarray(tokens, dtype=np.int64).ravel()
        if ids.size and not (ids.min() >= 0 and ids.max() < vocabulary_size):
            raise ValueError(
                f"public_tokens hold ids from {ids.min()} to {ids.max()}, expected 0 to "
                f"{vocabulary_size - 1}: is vocabulary_size={vocabulary_size} the tokenizer's?"
            )
        np.add.at(counts, ids, 1)
    smoothed = counts + 1.0
    smoothed[PAD_ID] = 0.0
    with np.errstate(divide="ignore"):
        return np.log(smoothed / smoothed.sum())


def unigram_loss(
    public_tokens: Iterable[npt.ArrayLike],
    vocabulary_size: int,
    source: ExampleSource,
    *,
    batch_size: int = 64,
    limit: int | None = None,
) -> CaptionLoss:
    """The loss on held-out captions of a model that knows only public word frequencies.

    Args:
        public_tokens: as in `unigram_log_probabilities`.
        vocabulary_size: number of ids, V.
        source: the held-out pairs, the same as given to `caption_loss`.
        batch_size: captions a pass.
        limit: score only this many records from the start, all when None.

    Returns:
        The loss, comparable field by field with that of `caption_loss`.
    """
    log_probabilities = tf.constant(
        unigram_log_probabilities(public_tokens, vocabulary_size), tf.float32
    )

    def token_nll(x: Any, targets: tf.Tensor) -> tf.Tensor:
        del x
        return -tf.gather(log_probabilities, targets)

    return score_captions(token_nll, source, batch_size, limit)
