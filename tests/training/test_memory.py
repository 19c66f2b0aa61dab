"""Memory is bounded by the microbatch, whatever the batch."""

import pytest

CASE = """
import resource, sys
import keras, numpy as np, tfdp
from tests.training.models import compiled
batch = int(sys.argv[1])
inputs = keras.Input((64, 256))
hidden = keras.layers.Dense(256, activation="relu")(keras.layers.Dense(256)(inputs))
model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(hidden)))
plan = tfdp.PrivacyPlan(8192, batch, 2, 1.0, noise_multiplier=1.0, delta=1e-5)
model = compiled(model, plan, microbatch_size=32)
features = np.lib.stride_tricks.as_strided(np.zeros(1, "float32"), (8192, 64, 256), (0, 0, 0))
model.fit(features, np.zeros(8192, "int32"), verbose=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_h5_a_batch_of_4096_trains_in_the_memory_of_32(run_in_subprocess):
    small, large = (int(run_in_subprocess(CASE, batch).split()[-1]) for batch in ("32", "4096"))
    assert large == pytest.approx(small, rel=0.1)
