"""jax_privacy on a last layer: one clipped full-batch gradient for every line read.

Runs in the environment that benchmarks.peers makes.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.clipping import clipped_grad

MICROBATCH = 250  # the best of 1, 50, 250 and 1000 on a two-core machine

data = np.load(sys.argv[1])
x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
classes = int(data["classes"])
weights = {"kernel": jnp.zeros((x.shape[1], classes)), "bias": jnp.zeros(classes)}


def loss(weights, x, y):
    logits = x @ weights["kernel"] + weights["bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


gradient = clipped_grad(
    loss, l2_clip_norm=float(data["clip"]), batch_argnums=(1, 2), microbatch_size=MICROBATCH
)


@jax.jit
def step(weights, key, x, y):
    total = gradient(weights, x, y)
    leaves, structure = jax.tree.flatten(total)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.map(lambda w, g: w - g / len(x), weights, jax.tree.unflatten(structure, noisy))


key = jax.random.key(0)
for _ in sys.stdin:
    start = time.perf_counter()
    key, own = jax.random.split(key)
    weights = jax.block_until_ready(step(weights, own, x, y))
    print(time.perf_counter() - start, flush=True)
