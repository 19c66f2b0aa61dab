"""How surprised a model is by captions that it has not seen, in nats."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfdp.captioner.captioner import Captioner
from tfdp.captioner.captioner_config import PAD_ID
from tfdp.data import ExampleSource, batches
from tfdp.evaluation.features import NumberedExamples


@dataclasses.dataclass(frozen=True)
class CaptionLoss:
    """The negative log-likelihood of held-out captions, end token included.

    Attributes:
        per_caption: Nats per token averaged within each caption, then over captions: the loss that
            training minimizes.
        per_token: Nats per token over all tokens, so that long captions weigh more.
        captions: How many captions were scored.
        tokens: How many tokens they hold.
        skipped: Examples that could not be read or hold no token.
    """

    per_caption: float
    per_token: float
    captions: int
    tokens: int
    skipped: int

    def to_dict(self) -> dict[str, float | int]:
        """The attributes by name, ready for JSON."""
        return dataclasses.asdict(self)


def caption_loss(
    model: keras.Model,
    source: ExampleSource,
    *,
    batch_size: int = 64,
    limit: int | None = None,
    other_pictures: bool = False,
) -> CaptionLoss:
    """The loss of a captioner on held-out pairs, by teacher forcing.

    Args:
        model: Maps the source's inputs to logits `[B, L, V]`; called with `training=False`.
        source: Picture-text pairs whose targets are int ids `[B, L]`, 0 where there is no token.
            Its pictures should not be augmented.
        batch_size: Captions per forward pass.
        limit: Score only this many examples from the start; all if None.
        other_pictures: Show each caption the picture before its own in the batch (`x["image"]`).
            How much more the captions surprise then is what the model reads off their pictures.

    Returns:
        The loss, averaged over captions and over tokens.

    Raises:
        ValueError: If the source holds no caption that can be scored.
    """

    def token_nll(x: Any, targets: tf.Tensor) -> tf.Tensor:
        if other_pictures:
            x = {**x, "image": tf.roll(x["image"], 1, axis=0)}
        logits = tf.cast(model(x, training=False), tf.float32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

    return score_captions(token_nll, source, batch_size, limit)


def score_captions(
    token_nll: Callable[[Any, tf.Tensor], tf.Tensor],
    source: ExampleSource,
    batch_size: int,
    limit: int | None,
) -> CaptionLoss:
    """Averages `token_nll(x, targets) -> float32 [B, L]` over the captions of a source."""
    records = NumberedExamples(source, limit)
    pairs = batches(records, batch_size)
    (inputs, _), ids, *_ = pairs.element_spec  # one trace for all batches, the last one too

    @tf.function(autograph=False, input_signature=(inputs, ids))
    def sums(x: Any, targets: tf.Tensor) -> tuple[tf.Tensor, ...]:
        real = targets != PAD_ID
        tokens = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
        nll = tf.reduce_sum(tf.where(real, token_nll(x, targets), 0.0), axis=1)
        return (
            tf.reduce_sum(tf.cast(tf.math.divide_no_nan(nll, tokens), tf.float64)),
            tf.reduce_sum(tf.cast(nll, tf.float64)),
            tf.math.count_nonzero(tokens),
            tf.reduce_sum(tf.cast(tokens, tf.int64)),
        )

    per_caption, per_token, captions, tokens = 0.0, 0.0, 0, 0
    for (x, _), targets, *_ in pairs:
        batch = [value.numpy().item() for value in sums(x, targets)]
        per_caption, per_token = per_caption + batch[0], per_token + batch[1]
        captions, tokens = captions + batch[2], tokens + batch[3]
    if captions == 0:
        raise ValueError("No caption could be scored: every record is unreadable or empty.")
    return CaptionLoss(
        per_caption / captions, per_token / tokens, captions, tokens, len(records) - captions
    )


def unigram_log_probabilities(
    public_tokens: Iterable[npt.ArrayLike], vocabulary_size: int
) -> np.ndarray:
    """Log-frequencies of token ids in public text, with add-one (Laplace) smoothing.

    Args:
        public_tokens: The target ids of each public text (end token included); 0 is padding and is
            not counted. Counting private captions here would release them without accounting.
        vocabulary_size: Number of ids, V.

    Returns:
        float64 `[V]`, natural logarithms; the padding id has -inf, since it is never a target.

    Raises:
        ValueError: If an id lies outside `[0, V)`.
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
        public_tokens: As in `unigram_log_probabilities`.
        vocabulary_size: Number of ids, V.
        source: The held-out pairs, the same as given to `caption_loss`.
        batch_size: Captions per pass.
        limit: Score only this many examples from the start; all if None.

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


def times_likelier(
    model: Captioner, images: Any, token_ids: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """How many times likelier each caption is beside its own picture than beside the others'.

    Even a captioner whose generated captions are all alike may tell pictures apart: this shows it.

    Args:
        model: The captioner.
        images: float [N, S, S, 3], normalized as in training, two or more.
        token_ids: int [N, L], their captions: start id, ids, end id, filled up with 0.

    Returns:
        [N], the likelihood beside a caption's own picture over the geometric mean of those beside
        the N - 1 others; 1 throughout for a model that does not look at pictures.

    Raises:
        ValueError: There are fewer than two pictures, or not as many captions as pictures.
    """
    tokens = np.asarray(token_ids)
    count = len(tokens)
    if count < 2 or len(images) != count:
        raise ValueError(
            f"Expected two or more pictures with a caption each, got {len(images)} and {count}."
        )
    scores = np.asarray(model.score_captions(images, tokens), np.float64)  # picture x caption
    own = np.diagonal(scores)
    others = (scores.sum(axis=0) - own) / (count - 1)
    return np.exp((others - own) * (tokens[:, 1:] != PAD_ID).sum(axis=1))
