"""jax_privacy on a model of benchmarks.models: one clipped gradient sum for every line read.

    python jax_privacy_step.py MODEL ROWS MICROBATCH

Runs in the environment that benchmarks.peers makes; Keras builds the model on JAX.
"""

import os
import sys
import time
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
from jax_privacy.clipping import clipped_grad

from benchmarks.models import WORKLOADS

name, rows, microbatch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
workload = WORKLOADS[name]()
model = workload.build()
x, y = jax.tree.map(jnp.asarray, workload.batch(rows))
weights = [variable.value for variable in model.trainable_variables]
rest = [variable.value for variable in model.non_trainable_variables]


def loss(weights, x, y):
    outputs, _ = model.stateless_call(weights, rest, jax.tree.map(lambda leaf: leaf[None], x))
    chances = jax.nn.log_softmax(outputs[0])
    return -jnp.mean(jnp.take_along_axis(chances, y[..., None], axis=-1))


step = jax.jit(
    clipped_grad(
        loss,
        l2_clip_norm=1.0,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        microbatch_size=microbatch,
    )
)
for _ in sys.stdin:
    start = time.perf_counter()
    jax.block_until_ready(step(weights, x, y))
    print(time.perf_counter() - start, flush=True)
