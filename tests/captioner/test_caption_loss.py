"""Held-out caption loss and its unigram floor, against sums written out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.captioner import caption_loss, unigram_log_probabilities, unigram_loss
from tfdp.data import ArraySource, ExampleSource

VOCABULARY = 5


class FixedLogits(keras.Model):
    """Answers with the logits that each record carries."""

    def call(self, inputs):
        return inputs["logits"]


class SomeUnreadable(ExampleSource):
    """An ArraySource of which the records at the given indices cannot be decoded."""

    def __init__(self, source, unreadable):
        super().__init__()
        self._source, self._unreadable = source, tf.constant(unreadable, tf.int64)

    def __len__(self):
        return len(self._source)

    def fetch(self, indices, step):
        x, y, weight, valid = self._source.fetch(indices, step)
        bad = tf.reduce_any(indices[:, None] == self._unreadable, axis=1)
        x = {key: tf.where(bad[:, None, None], np.nan, value) for key, value in x.items()}
        return x, y, weight, valid & ~bad


@pytest.fixture
def captions():
    """Five captions of 3, 1, 2, 0 and 3 tokens over 5 ids, with random logits."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(5, 3, VOCABULARY)).astype(np.float32)
    targets = np.array([[1, 2, 4], [3, 0, 0], [2, 4, 0], [0, 0, 0], [1, 1, 4]], np.int32)
    return logits, targets


def token_nll(logits, targets):
    """Rows of -log softmax at the targets, written out in NumPy."""
    log_softmax = logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))
    return [
        [-log_softmax[row, column, token] for column, token in enumerate(caption) if token]
        for row, caption in enumerate(targets)
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 5, 64])
def test_loss_is_the_mean_over_real_tokens_whatever_the_batch(captions, batch_size):
    logits, targets = captions
    source = ArraySource({"logits": logits}, targets)
    result = caption_loss(FixedLogits(), source, batch_size=batch_size)
    rows = [row for row in token_nll(logits, targets) if row]
    assert result.per_caption == pytest.approx(np.mean([np.mean(row) for row in rows]), rel=1e-6)
    assert result.per_token == pytest.approx(np.mean(np.concatenate(rows)), rel=1e-6)
    assert (result.captions, result.tokens, result.skipped) == (4, 9, 1)


def test_unreadable_records_are_left_out_and_counted(captions):
    logits, targets = captions
    whole = ArraySource({"logits": logits}, targets)
    result = caption_loss(FixedLogits(), SomeUnreadable(whole, [0, 4]), batch_size=2)
    rest = caption_loss(FixedLogits(), ArraySource({"logits": logits[1:4]}, targets[1:4]))
    assert result.per_caption == pytest.approx(rest.per_caption, rel=1e-6)
    assert result.per_token == pytest.approx(rest.per_token, rel=1e-6)
    assert (result.captions, result.tokens, result.skipped) == (2, 3, 3)


def test_limit_scores_the_first_records_only(captions):
    logits, targets = captions
    source = ArraySource({"logits": logits}, targets)
    first = ArraySource({"logits": logits[:2]}, targets[:2])
    limited = caption_loss(FixedLogits(), source, batch_size=4, limit=2)
    assert limited == caption_loss(FixedLogits(), first, batch_size=4)


def test_half_precision_logits_are_scored_in_float32(captions):
    logits, targets = captions
    source = ArraySource({"logits": logits}, targets)
    half = FixedLogits(dtype="mixed_bfloat16")
    rounded = np.array(tf.cast(tf.cast(logits, tf.bfloat16), tf.float32))
    expected = caption_loss(FixedLogits(), ArraySource({"logits": rounded}, targets))
    assert caption_loss(half, source).per_token == pytest.approx(expected.per_token, rel=1e-6)


def test_nothing_to_score_is_rejected(captions):
    logits, _ = captions
    empty = ArraySource({"logits": logits}, np.zeros((5, 3), np.int32))
    with pytest.raises(ValueError, match="No caption could be scored"):
        caption_loss(FixedLogits(), empty)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        caption_loss(FixedLogits(), empty, batch_size=0)
    with pytest.raises(ValueError, match="limit must be at least 1"):
        caption_loss(FixedLogits(), empty, limit=0)


def test_unigram_probabilities_are_add_one_smoothed_without_padding():
    # Counts over ids 1..4: 2, 1, 0, 1; plus one each: 3, 2, 1, 2 of 8.
    log_probabilities = unigram_log_probabilities([[1, 2, 0, 0], [1], [4]], VOCABULARY)
    np.testing.assert_allclose(np.exp(log_probabilities), [0, 3 / 8, 2 / 8, 1 / 8, 2 / 8])


def test_unigram_loss_is_the_mean_surprise_of_the_held_out_tokens(captions):
    logits, targets = captions
    source = ArraySource({"logits": logits}, targets)
    result = unigram_loss([[1, 2, 0, 0], [1], [4]], VOCABULARY, source, batch_size=2)
    surprise = -np.log([1, 3 / 8, 2 / 8, 1 / 8, 2 / 8])
    rows = [[surprise[token] for token in caption if token] for caption in targets]
    rows = [row for row in rows if row]
    assert result.per_caption == pytest.approx(np.mean([np.mean(row) for row in rows]), rel=1e-6)
    assert result.per_token == pytest.approx(np.mean(np.concatenate(rows)), rel=1e-6)
    assert (result.captions, result.tokens, result.skipped) == (4, 9, 1)


def test_ids_outside_the_vocabulary_are_rejected():
    with pytest.raises(ValueError, match="from 1 to 7, expected 0 to 4"):
        unigram_log_probabilities([[1, 7]], VOCABULARY)
    with pytest.raises(ValueError, match="expected 0 to 4"):
        unigram_log_probabilities([[-1]], VOCABULARY)
