"""What ``clipped_gradient_sum`` is given, as arrays; what would fail later is named here."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tfdp import checks


def as_fields(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns all leaves as arrays.

    Raises:
      TypeError: One holds something that is no number, nor text in ``x``.
    """
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    arrays: Any = keras.tree.map_structure(
        lambda leaf: None if leaf is None else np.asarray(leaf), given
    )
    for path, leaf in keras.tree.flatten_with_path(arrays):
        if leaf is None or leaf.dtype.kind not in "OSUMm":
            continue
        name = ".".join(map(str, path))
        if not all(isinstance(value, str | bytes) for value in leaf.flat):
            raise TypeError(
                f"{name} must be an array [B, ...] of numbers, got objects of type "
                f"{type(leaf.flat[0]).__name__}. Rows of different lengths must be padded first, "
                "data sets and sparse tensors turned into arrays."
            )
        if path[0] != "x":
            raise TypeError(f"{name} must be an array of numbers, got text: {leaf.flat[:3]}.")
    return arrays["x"], arrays["y"], arrays["sample_weight"]


def flags(mask: Any) -> np.ndarray:
    """Returns the mask as booleans ``[B]``.

    Raises:
      ValueError: It is something else.
    """
    given = np.asarray(mask)
    if given.ndim != 1 or not np.isin(given, [0, 1]).all():
        raise ValueError(f"mask must hold one boolean an example, shape [B], got {mask!r}.")
    return given.astype(bool)


def common_length(fields: dict[str, Any]) -> int:
    """Returns how many rows all arrays have.

    Raises:
      TypeError: Something is not an array.
      ValueError: They have different numbers of rows, or there are none.
    """
    for name in ("x", "y"):
        if all(leaf is None for leaf in keras.tree.flatten(fields[name])):
            raise ValueError(f"{name}={fields[name]!r}: expected arrays [B, ...].")
    lengths = {}
    for path, leaf in keras.tree.flatten_with_path(fields):
        name = ".".join(map(str, path))
        if leaf is not None and not leaf.ndim:
            raise TypeError(
                f"{path[0]} must hold arrays [B, ...], got the single value {leaf!r} at {name}. "
                "Lists of numbers become arrays by np.asarray(...)."
            )
        if leaf is not None:
            lengths[name] = len(leaf)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"All arrays must have the same number of rows, got {lengths}.")
    return next(iter(lengths.values()))


def check_microbatch_size(size: Any) -> None:
    """Raises for what is neither None nor a number of rows."""
    if size is not None:
        checks.whole("microbatch_size", size, least=1, or_else="None")


def check_seed(seed: Any) -> None:
    """Raises ``ValueError`` for anything but two whole numbers."""
    given = np.asarray(seed)
    if given.shape != (2,) or given.dtype.kind not in "iu":
        raise ValueError(f"seed must be two whole numbers, such as (0, 1), got {seed!r}.")
