"""What the compiled function holds: read off the program that XLA made."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import ids
from tfdp.clipping import Batch, ClippedGradient, per_example_loss
from tfdp.clipping.forward import Forward

ROWS, TOKENS, VOCABULARY, WIDTH = 4, 6, 4001, 8
LOSS = per_example_loss(keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def tied():
    x = keras.Input((TOKENS,), dtype="int32")
    embed = keras.layers.ReversibleEmbedding(VOCABULARY, WIDTH)
    return keras.Model(x, embed(keras.layers.Dense(WIDTH)(embed(x)), reverse=True))


def looked_up():
    x = keras.Input((TOKENS,), dtype="int32")
    table = keras.layers.Embedding(VOCABULARY, WIDTH)
    return keras.Model(x, keras.layers.Dense(VOCABULARY)(table(x)))


def inputs():
    x, y = (tf.constant(ids(ROWS, TOKENS, below=VOCABULARY, seed=seed)) for seed in (0, 1))
    return Batch(x, y, None, tf.ones([ROWS], tf.bool), tf.constant([0, 1]))


def private_program(model) -> str:
    """What XLA makes of the clipped sum."""
    clipped = ClippedGradient(model, LOSS, 1.0, engine="single_pass")
    clipped.check(inputs())
    weights = [tf.convert_to_tensor(v.value) for v in clipped.forward.trainable]
    program = clipped._functions[True].experimental_get_compiler_ir(
        weights, [], inputs(), None, False
    )
    return program(stage="optimized_hlo")


def ordinary_program(model) -> str:
    """What XLA makes of the losses and the gradient of their sum."""
    forward = Forward(model, LOSS)

    @tf.function(jit_compile=True, autograph=False)
    def step(weights, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with keras.StatelessScope(forward.mapping(weights, [], batch.seed)):
                losses, _ = forward.losses(batch.x, batch.y, None)
        return losses, [tf.convert_to_tensor(g) for g in tape.gradient(losses, weights)]

    weights = [tf.convert_to_tensor(v.value) for v in forward.trainable]
    return step.experimental_get_compiler_ir(weights, inputs())(stage="optimized_hlo")


def sizes(program: str, operations: str = r"\S+") -> list[int]:
    """Numbers in the arrays that the program's operations give."""
    shapes = re.findall(rf"= [a-z]+\d+\[([\d,]+)\]\S* {operations}\(", program)
    return [int(np.prod([int(size) for size in shape.split(",")])) for shape in shapes]


@pytest.mark.parametrize("build", [tied, looked_up])
def test_the_norms_of_a_table_never_build_its_gradient_for_every_example(build):
    """No [B, vocabulary, width]: nothing is larger than the logits of the examples at hand."""
    assert ROWS * VOCABULARY * WIDTH > ROWS * TOKENS * VOCABULARY
    assert max(sizes(private_program(build()))) <= ROWS * TOKENS * VOCABULARY


@pytest.mark.parametrize("build", [tied, looked_up])
def test_the_logits_and_their_gradient_are_held_no_more_often_than_by_an_ordinary_step(build):
    model = build()
    ours, ordinary = (
        sizes(program[program.index("ENTRY") :], "(?:fusion|dot|copy)").count(
            ROWS * TOKENS * VOCABULARY
        )
        for program in (private_program(model), ordinary_program(model))
    )
    assert 2 <= ours <= ordinary
