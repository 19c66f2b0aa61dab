"""From the name of a distribution strategy to the strategy."""

from __future__ import annotations

import os

import tensorflow as tf

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def choose_strategy(name: str = "auto", tpu: str | None = None) -> tf.distribute.Strategy:
    """Returns the strategy of that name, ready for ``with strategy.scope():``.

    Args:
      name: "one_device" trains on the first GPU, or the CPU; "mirrored" on all GPUs of the
        machine, or all logical CPU devices where there is none; "multi_worker" on the machines
        that the environment variable TF_CONFIG lists; "tpu" on a Cloud TPU. "auto" takes the
        TPU where TPU_NAME is set, the workers where TF_CONFIG is, else all GPUs, else one device.
      tpu: Name or address of the TPU; TPU_NAME by default.

    Raises:
      ValueError: The name is unknown, or what the strategy needs is missing.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy={name!r}: expected one of {', '.join(STRATEGIES)}.")
    if name == "auto":
        name = _detect(tpu)
    if name == "tpu":
        return _tpu(tpu)
    if name == "multi_worker":
        if "TF_CONFIG" not in os.environ:
            raise ValueError(
                'strategy="multi_worker" needs the environment variable TF_CONFIG, a JSON text '
                'with the addresses of all workers under "cluster" and this one under "task".'
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored":
        devices = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")


def is_first_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes the run's files."""
    resolver = strategy.cluster_resolver
    task = None if resolver is None else resolver.task_id
    return not strategy.extended._in_multi_worker_mode() or not task


def _detect(tpu: str | None) -> str:
    if tpu or os.environ.get("TPU_NAME"):
        return "tpu"
    if "TF_CONFIG" in os.environ:
        return "multi_worker"
    return "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one_device"


def _tpu(tpu: str | None) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu or "")
    except Exception as error:  # the resolver raises many kinds, from lookup to connection
        raise ValueError(
            f'strategy="tpu": no TPU answers under {tpu or os.environ.get("TPU_NAME")!r} '
            f"({type(error).__name__}: {error}). Start one, set TPU_NAME, and use a TensorFlow "
            "built for TPU; or choose another strategy."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
