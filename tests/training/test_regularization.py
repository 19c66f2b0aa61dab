"""Regularisation losses are functions of the weights alone: outside of clipping, once a step."""

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import compiled, separable

ROWS, FACTOR = 32, 0.25


def build(regularizer):
    keras.utils.set_random_seed(5)
    x = keras.Input((10,))
    return keras.Model(x, keras.layers.Dense(2, kernel_regularizer=regularizer)(x))


@pytest.mark.parametrize("microbatch_size", [32, 8])
def test_a_regularizer_adds_its_gradient_once_whatever_the_microbatches(microbatch_size):
    features, labels = separable(ROWS)
    moved = []
    for regularizer in (None, keras.regularizers.L2(FACTOR)):
        plan = tfdp.PrivacyPlan(ROWS, ROWS, 1, 1e-3, noise_multiplier=0.0, delta=1e-5)
        model = compiled(build(regularizer), plan, microbatch_size=microbatch_size)
        kernel = model.layers[-1].kernel.numpy()
        model.fit(features, labels, verbose=0)
        moved.append(kernel - model.layers[-1].kernel.numpy())
    assert np.linalg.norm(moved[0]) <= 1e-3 * 1.0001
    np.testing.assert_allclose(moved[1] - moved[0], 2 * FACTOR * kernel, rtol=1e-4, atol=1e-6)


def test_the_penalty_is_in_the_loss_of_training_and_of_validation_as_in_keras():
    data = separable(ROWS)
    plan = tfdp.PrivacyPlan(ROWS, ROWS, 1, 1.0, noise_multiplier=1.0, delta=1e-5)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain = build(keras.regularizers.L2(FACTOR))
    plain.compile("sgd", loss)
    before = plain.evaluate(*data, verbose=0)
    model = compiled(build(keras.regularizers.L2(FACTOR)), plan, loss=loss, microbatch_size=8)
    history = model.fit(*data, validation_data=data, verbose=0).history
    plain.set_weights(model.get_weights())
    assert history["loss"] == pytest.approx([before], rel=1e-5)
    assert history["val_loss"] == pytest.approx([plain.evaluate(*data, verbose=0)], rel=1e-5)
