"""Half precision: norms, factors and sums are formed in float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import clipped
from tests.clipping.reference import policy


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
@pytest.mark.parametrize("value, count, norm", [(1e-4, 1_000_000, 0.1), (300.0, 4, 600.0)])
def test_b1_norms_neither_underflow_nor_overflow_in_half_precision(engine, value, count, norm):
    with policy("mixed_float16"):
        model = keras.Sequential(
            [keras.layers.Input((count,)), keras.layers.Dense(1, use_bias=False)]
        )
    model.layers[0].kernel.assign(tf.zeros([count, 1]))
    x = np.full((2, count), value, "float32")
    y = np.zeros((2, 1), "float32")
    found = clipped(model, lambda t, p: p[:, 0], x, y, clip_norm=1.0, engine=engine)
    np.testing.assert_allclose(found.norms, [norm, norm], rtol=1e-3)
    total = float(tf.linalg.global_norm(found.gradients))
    assert total == pytest.approx(2 * min(norm, 1.0), rel=1e-3)
    assert found.gradients[0].dtype == tf.float32
