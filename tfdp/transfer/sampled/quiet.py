"""Keeps a warning off that is about functions and not about what is done here."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def many_models() -> Iterator[None]:
    """For runs that each make a model: TensorFlow takes their functions for one that is re-traced.

    It tells functions apart by their code, and every model has its own functions of the same code,
    which are traced once each. From the fifth model on it warns of every one.
    """
    logger = tf.get_logger()
    logger.addFilter(_not_of_retracing)
    try:
        yield
    finally:
        logger.removeFilter(_not_of_retracing)


def _not_of_retracing(record: logging.LogRecord) -> bool:
    return "triggered tf.function retracing" not in record.getMessage()
