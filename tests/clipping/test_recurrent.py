"""LSTM, GRU and SimpleRNN in a single pass, in every setting that has a rule."""

import keras
import pytest

from tests.clipping.models import floats, ids, perturbed
from tests.clipping.reference import check

layers = keras.layers


def sequential(*make):
    def build():
        return perturbed(keras.Sequential([layers.Input((4, 3)), *(m() for m in make)]))

    return build


CASES = {
    "lstm": sequential(lambda: layers.LSTM(2, return_sequences=True), lambda: layers.LSTM(3)),
    "lstm without bias": sequential(lambda: layers.LSTM(2, use_bias=False, activation="relu")),
    "gru": sequential(lambda: layers.GRU(2, return_sequences=True), lambda: layers.GRU(3)),
    "gru without bias": sequential(lambda: layers.GRU(2, use_bias=False)),
    "backwards": sequential(
        lambda: layers.GRU(2, go_backwards=True, return_sequences=True),
        lambda: layers.LSTM(2, go_backwards=True),
    ),
    "simple": sequential(lambda: layers.SimpleRNN(3, return_sequences=True)),
    "bidirectional": sequential(lambda: layers.Bidirectional(layers.LSTM(2))),
    "unrolled": sequential(lambda: layers.LSTM(2, unroll=True)),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
def test_equals_the_loop(build):
    check(build, floats(3, 4, 3), floats(3, *build().output_shape[1:], seed=1),
          engines=["single_pass"])  # fmt: skip


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
def test_equals_the_loop_under_xla(engine):
    build = sequential(lambda: layers.LSTM(2, return_sequences=True), lambda: layers.GRU(3))
    check(build, floats(3, 4, 3), floats(3, 3), engines=[engine], jit_compile=True)


def test_masked_steps_and_states_handed_on():
    def build():
        x = layers.Input((5,), dtype="int32")
        y = layers.Embedding(6, 4, mask_zero=True)(x)
        y = layers.Bidirectional(layers.GRU(3, return_sequences=True))(y)
        y, *states = layers.LSTM(3, return_state=True, return_sequences=True)(y)
        z = layers.LSTM(3)(layers.Dense(4)(x[..., None] * 0.1), initial_state=states)
        return perturbed(keras.Model(x, layers.Dense(2)(z)))

    x = ids(4, 5, below=6)
    x[:, 3:] = 0
    x[1, :2] = 0  # masked at both ends
    check(build, x, floats(4, 2), engines=["single_pass"])
