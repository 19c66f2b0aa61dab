"""Regularisation losses are functions of the weights alone: outside of clipping, once an update."""

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
