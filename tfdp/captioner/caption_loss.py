"""How surprised a model is by captions that it has not seen, in nats."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdp.captioner.config import PAD_ID
from tfdp.data import ExampleSource, batches
from tfdp.evaluation.numbered import NumberedExamples


@dataclasses.dataclass(frozen=True)
class CaptionLoss:
    """The negative log-likelihood of held-out captions, end token included.

    Attributes:
        per_caption: nats per token averaged within each caption, then over captions: the loss that
            training minimises.
        per_token: nats per token over all tokens, so that long captions weigh more.
        captions: how many captions were scored.
        tokens: how many tokens they hold.
        skipped: records that could not be read or hold no token.
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
        model: maps the source's inputs to logits `[B, L, V]`; called with `training=False`.
        source: picture-text pairs whose targets are int ids `[B, L]`, 0 where there is no token.
            Its pictures should not be augmented.
        batch_size: captions a forward pass.
        limit: score only this many records from the start, all when None.
        other_pictures: show each caption the picture before its own in the batch (`x["image"]`).
            How much more the captions surprise then is what the model reads off their pictures.

    Returns:
        The loss, averaged over captions and over tokens.

    Raises:
        ValueError: if the source holds no caption that can be scored.
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
