"""What the computation runs on."""

import tensorflow as tf


def only_cpus() -> bool:
    """Whether there is nothing but CPUs."""
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}
