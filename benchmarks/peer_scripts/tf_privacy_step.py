"""TensorFlow Privacy on a model of benchmarks.models: one private step for every line read.

    python tf_privacy_step.py MODEL ROWS

Runs in the environment that benchmarks.peers makes, with its vectorized DPModel under XLA: its fast
clipping has rules for Dense and Embedding only and else falls back to the same.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf
from tensorflow_privacy.privacy.keras_models.dp_keras_model import DPModel

from benchmarks.models import WORKLOADS

name, rows = sys.argv[1], int(sys.argv[2])
workload = WORKLOADS[name]()
plain = workload.build()
model = DPModel(
    l2_norm_clip=1.0,
    noise_multiplier=0.0,
    use_xla=True,
    inputs=plain.inputs if isinstance(plain.input, list) else plain.input,
    outputs=plain.outputs[0],
)
x, y = tf.nest.map_structure(tf.constant, workload.batch(rows))


def loss(y_true, y_pred):
    y_true = tf.reshape(y_true, tf.shape(y_pred)[:-1])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
    return tf.reduce_mean(tf.reshape(losses, [tf.shape(y_pred)[0], -1]), axis=1)


model.compile(tf.keras.optimizers.SGD(0.0), loss=loss)
step = tf.function(model.train_step)
for _ in sys.stdin:
    start = time.perf_counter()
    tf.nest.map_structure(lambda leaf: leaf.numpy(), step((x, y)))
    print(time.perf_counter() - start, flush=True)
