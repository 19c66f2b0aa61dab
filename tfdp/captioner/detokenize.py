"""Ids to text with TensorFlow's own string ops, so that a bundle needs no tokenizer library."""

import tensorflow as tf

from tfdp.captioner.tokenizer import CaptionTokenizer


def detokenize(tokenizer: CaptionTokenizer, ids: tf.Tensor) -> tf.Tensor:
    """The same text as `tokenizer.detokenize`, inside a graph.

    Args:
        tokenizer: whose vocabulary becomes a constant of the graph.
        ids: int `[B, L]`.

    Returns:
        string `[B]`: the pieces before the first end id, without special pieces, as words.
    """
    ended = tf.cumsum(tf.cast(ids == tokenizer.end_id, tf.int32), axis=1) > 0
    kept = ~ended & (ids != tokenizer.pad_id) & (ids != tokenizer.start_id)
    pieces = tf.gather(tf.constant(tokenizer.vocabulary), ids)
    text = tf.strings.reduce_join(tf.ragged.boolean_mask(pieces, kept), axis=1, separator=" ")
    text = tf.strings.regex_replace(text, " ##", "")
    return tf.strings.regex_replace(text, " ?(['-]) ?", r"\1")
