"""jax_privacy on a last layer: one clipped full-batch gradient for every line read.

Runs in the environment that benchmarks.peers makes.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.clipping import clipped_grad

# Of those that the rows can be cut into, the fastest is taken, judged by the first TRIAL rows.
MICROBATCHES = (1, 8, 80)
TRIAL = 3200

data = np.load(sys.argv[1])
x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
classes = int(data["classes"])
weights = {"kernel": jnp.zeros((x.shape[1], classes)), "bias": jnp.zeros(classes)}


def loss(weights, x, y):
    logits = x @ weights["kernel"] + weights["bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


def make_step(microbatch):
    gradient = clipped_grad(
        loss, l2_clip_norm=float(data["clip"]), batch_argnums=(1, 2), microbatch_size=microbatch
    )

    @jax.jit
    def step(weights, key, x, y):
        leaves, structure = jax.tree.flatten(gradient(weights, x, y))
        keys = jax.random.split(key, len(leaves))
        noisy = [g + jax.random.normal(k, g.shape) for g, k in zip(leaves, keys, strict=True)]
        total = jax.tree.unflatten(structure, noisy)
        return jax.tree.map(lambda w, g: w - g / len(x), weights, total)

    return step


def seconds(step, *arguments):
    start = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return time.perf_counter() - start


def trial(microbatch):
    """Seconds of the second call: the first one compiles."""
    arguments = weights, jax.random.key(0), x[:TRIAL], y[:TRIAL]
    step = make_step(microbatch)
    seconds(step, *arguments)
    return seconds(step, *arguments)


step = make_step(min((m for m in MICROBATCHES if len(x) % m == 0), key=trial))
key = jax.random.key(0)
for _ in sys.stdin:
    start = time.perf_counter()
    key, own = jax.random.split(key)
    weights = jax.block_until_ready(step(weights, own, x, y))
    print(time.perf_counter() - start, flush=True)
