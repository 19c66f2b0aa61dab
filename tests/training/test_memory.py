"""Memory is bounded by the microbatch, whatever the batch, and does not grow with the steps."""

import pytest

# Of the process itself: its resource usage starts at the peak of whoever started it.
MEMORY = """
from pathlib import Path
def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(what)))
"""
CASE = (
    MEMORY
    + """
import sys
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
print(memory("VmHWM"))
"""
)
MANY_UPDATES = (
    MEMORY
    + """
import keras, numpy as np, tfdp
from tests.training.models import compiled
inputs = keras.Input((16, 16, 3))
x = keras.layers.Conv2D(8, 3, activation="relu")(inputs)
x = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(x)
model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))
# Not by PLD, whose transforms keep a few tables of their own.
plan = tfdp.PrivacyPlan(1000, 32, 250, 1.0, noise_multiplier=1.0, delta=1e-5, accountant="rdp")
model = compiled(model, plan)
x, y = np.zeros((1000, 16, 16, 3), "float32"), np.zeros(1000, "int32")
model.fit(x, y, epochs=1, steps_per_epoch=50, verbose=0)
before = memory("VmRSS")
model.fit(x, y, epochs=1, steps_per_epoch=200, verbose=0)
print(before, memory("VmRSS"))
"""
)


def test_a_batch_of_4096_trains_in_the_memory_of_32(run_in_fork):
    """H5."""
    small, large = (int(run_in_fork(CASE, batch).split()[-1]) for batch in ("32", "4096"))
    assert large == pytest.approx(small, rel=0.1)


def test_memory_is_flat_over_200_steps_of_a_convolutional_network(run_in_fork):
    """H2."""
    before, after = map(int, run_in_fork(MANY_UPDATES).split()[-2:])
    assert after < 1.02 * before
