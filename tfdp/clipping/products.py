"""Products of float32 numbers as float32 computes them, on every device."""

from __future__ import annotations

import warnings

import tensorflow as tf


def require_float32_products() -> None:
    """Turns off TensorFloat-32 on GPUs and its like on TPUs, and says so.

    There TensorFlow rounds the factors of float32 products to 10 or 7 bits. A norm and the clipped
    sum that it bounds would then round apart, and products that cancel could pass the bound. The
    setting is TensorFlow's own for the whole process; half precision policies keep their speed.
    """
    settings = tf.config.experimental
    if not settings.tensor_float_32_execution_enabled():
        return
    if not any(tf.config.list_physical_devices(kind) for kind in ("GPU", "TPU")):
        return
    settings.enable_tensor_float_32_execution(False)
    warnings.warn(
        "TensorFloat-32 is turned off: per-example norms and clipped sums must be of float32 "
        'products. For fast products use keras.config.set_dtype_policy("mixed_bfloat16").',
        stacklevel=2,
    )
