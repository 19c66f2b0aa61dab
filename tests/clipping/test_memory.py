"""What the compiled function holds: read off the program that XLA made."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import ids
from tfdp.clipping import Batch, ClippedGradient, per_example_loss

ROWS, TOKENS, VOCABULARY, WIDTH = 4, 6, 4001, 8


def tied():
    x = keras.Input((TOKENS,), dtype="int32")
    embed = keras.layers.ReversibleEmbedding(VOCABULARY, WIDTH)
    return keras.Model(x, embed(keras.layers.Dense(WIDTH)(embed(x)), reverse=True))


def looked_up():
    x = keras.Input((TOKENS,), dtype="int32")
    table = keras.layers.Embedding(VOCABULARY, WIDTH)
    return keras.Model(x, keras.layers.Dense(VOCABULARY)(table(x)))


def largest_array(model) -> int:
    """Numbers in the largest array of the optimised program."""
    loss = per_example_loss(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    clipped = ClippedGradient(model, loss, 1.0, engine="single_pass")
    x, y = (tf.constant(ids(ROWS, TOKENS, below=VOCABULARY, seed=seed)) for seed in (0, 1))
    batch = Batch(x, y, None, tf.ones([ROWS], tf.bool), tf.constant([0, 1]))
    clipped.check(batch)
    weights = [tf.convert_to_tensor(v.value) for v in clipped.forward.trainable]
    program = clipped._function.experimental_get_compiler_ir(weights, [], batch, None, False)
    shapes = re.findall(r"\b[a-z]+\d+\[([\d,]+)\]", program(stage="optimized_hlo"))
    return max(int(np.prod([int(size) for size in shape.split(",")])) for shape in shapes)


@pytest.mark.parametrize("build", [tied, looked_up])
def test_the_norms_of_a_table_never_build_its_gradient_for_every_example(build):
    """No [B, vocabulary, width]: nothing is larger than the logits of the rows at hand."""
    assert ROWS * VOCABULARY * WIDTH > ROWS * TOKENS * VOCABULARY
    assert largest_array(build()) <= ROWS * TOKENS * VOCABULARY
