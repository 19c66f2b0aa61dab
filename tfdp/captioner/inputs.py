"""Checks of what goes into the captioner, made while the shapes are known."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


def checked_images(images: Any, size: int) -> Any:
    """The pictures as a tensor.

    Raises:
        ValueError: they are not [B, size, size, 3], or hold raw bytes.
    """
    images = ops.convert_to_tensor(images)
    if len(images.shape) != 4 or tuple(images.shape[1:]) != (size, size, 3):
        raise ValueError(f"images must be [B, {size}, {size}, 3], got {tuple(images.shape)}.")
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(images.dtype)):
        raise ValueError(
            f"images must be normalised floats, got {images.dtype}; divide by 255 and apply "
            "the mean and standard deviation of the training run."
        )
    return images


def checked_ids(name: str, ids: Any, ranks: tuple[int, ...], max_length: int) -> Any:
    """The token ids as an int32 tensor.

    Raises:
        ValueError: they are not integers, have another number of axes than one of `ranks`,
            or are longer than `max_length`.
    """
    ids = ops.convert_to_tensor(ids)
    if not keras.backend.is_int_dtype(keras.backend.standardize_dtype(ids.dtype)):
        raise ValueError(f"{name} must be integer ids, got {ids.dtype}.")
    if len(ids.shape) not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise ValueError(f"{name} must have {wanted} axes, got shape {tuple(ids.shape)}.")
    if ids.shape[-1] is not None and ids.shape[-1] > max_length:
        raise ValueError(
            f"{name} are {ids.shape[-1]} ids long, the model's max_length is {max_length}; "
            "shorten the captions or build the model with a larger max_length."
        )
    return ops.cast(ids, "int32")
