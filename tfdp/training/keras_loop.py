"""What Keras's own training loop needs around it to make the steps of a private run."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf


def one_at_a_time(fit: Callable) -> Callable:
    """Refuses a call of fit inside another, or beside it in another thread.

    Both would make the same steps, and enter them in each other's place.
    """

    @functools.wraps(fit)
    def alone(self: keras.Model, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        fitting = self._compiled_state("fit").fitting
        if not fitting.acquire(blocking=False):
            raise ValueError(
                "fit: this model is training already, in a fit() around this one or in another "
                "thread. Wait for that to end."
            )
        try:
            return fit(self, *args, **kwargs)
        finally:
            fitting.release()

    return alone


def endless_ticks(strategy: tf.distribute.Strategy) -> tf.data.Dataset:
    """What Keras's training loop counts steps by; the records come from the run itself."""
    return tf.data.Dataset.range(1).repeat().batch(strategy.num_replicas_in_sync)


@contextlib.contextmanager
def last_epoch_may_be_short() -> Iterator[None]:
    """Silences Keras's warning of an epoch with fewer steps, which the last one may have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        yield
