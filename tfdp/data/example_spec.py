"""What an example looks like: declared by a person, never learned from the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def as_leaf(value: Any) -> np.ndarray:
    """Views a value as an array; text becomes an array of objects, as TensorFlow wants it."""
    array = np.asanyarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def tensor_dtype(array: np.ndarray) -> tf.DType:
    """Type of the tensors made of an array; floating point is Keras's default, as in Keras."""
    if array.dtype.kind == "O":
        return tf.string
    if array.dtype.kind == "f":
        return tf.as_dtype(keras.config.floatx())
    return tf.as_dtype(array.dtype)


def as_parts(template: dict[str, Any], rows: list[tf.Tensor]) -> tuple[Any, Any, Any]:
    """Packs flat rows as the named parts of an example: `(x, y, sample_weight)`."""
    parts = keras.tree.pack_sequence_as(template, rows)
    weight = parts.get("sample_weight")
    if weight is not None:
        weight = tf.cast(weight, tf.float32)
        while weight.shape.rank > 1 and weight.shape[-1] == 1:  # a column, as Keras takes it
            weight = tf.squeeze(weight, -1)
    return parts["x"], parts.get("y"), weight


PARTS = ("x", "y", "sample_weight")


def declared_spec(sequence: Any, map_fn: Callable | None, element_spec: Any) -> Any | None:
    """Returns the declared specs of an example by part, or None where nobody declared any.

    Args:
        sequence: The items. One with an `element_spec` declares them; of a `tfds.data_source` the
            features do.
        map_fn: What makes an example of an item; it is tried on an item of zeros.
        element_spec: What the caller declared, of an example after `map_fn`.

    Raises:
        TypeError: Something declared is no `tf.TensorSpec`.
        ValueError: A declared shape leaves a length open.
    """
    if element_spec is not None:
        return _checked(by_part(element_spec))
    items = getattr(sequence, "element_spec", None)
    if items is None and hasattr(sequence, "dataset_info"):
        items = sequence.dataset_info.features.get_tensor_spec()
    if items is None:
        return None
    if map_fn is None:
        return _checked(by_part(items))
    try:
        example = map_fn(keras.tree.map_structure(_zeros, items))
        return _checked(keras.tree.map_structure(spec_of, by_part(example)))
    except Exception:  # code of the user's that does not suit zeros
        return None


def by_part(example: Any) -> dict[str, Any]:
    """Names the parts of an example, or of its spec."""
    parts = example if isinstance(example, tuple) else (example,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(
            f"An example is x, (x, y) or (x, y, sample_weight), got a tuple of {len(parts)}."
        )
    named = zip(PARTS, parts, strict=False)
    return {name: part for name, part in named if part is not None}


def spec_of(value: Any) -> tf.TensorSpec:
    """The spec of one array of an example."""
    array = as_leaf(value)
    return tf.TensorSpec(array.shape, tensor_dtype(array))


def written(example: Any) -> str:
    """The specs of an example, as code to paste."""
    parts = [_code(keras.tree.map_structure(spec_of, part)) for part in by_part(example).values()]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def as_declared(value: np.ndarray, spec: tf.TensorSpec) -> np.ndarray | None:
    """Returns an array in the declared type, or None where that would change what it says."""
    if spec.dtype == tf.string:
        text = value.dtype.kind == "O" and all(isinstance(v, str | bytes) for v in value.ravel())
        return value if text else None
    try:
        kind = tf.as_dtype(value.dtype)
    except TypeError:  # dates and the like
        return None
    if not (kind.is_floating or kind.is_integer or kind.is_bool):
        return None
    with np.errstate(all="ignore"):
        cast = value.astype(spec.dtype.as_numpy_dtype)
        return cast if spec.dtype.is_floating or np.all(cast == value) else None


def _checked(parts: dict[str, Any]) -> dict[str, Any]:
    """The specs with Keras's default float type, as `fit` makes of arrays."""
    for spec in keras.tree.flatten(parts):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(
                f"element_spec holds {spec!r}: expected tf.TensorSpec(shape, dtype) for every "
                "array of one example."
            )
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"element_spec holds {spec}: every length must be stated. Pad examples of "
                "different lengths in map_fn, and declare what it returns."
            )
    return keras.tree.map_structure(_as_default_float, parts)


def _as_default_float(spec: tf.TensorSpec) -> tf.TensorSpec:
    dtype = tf.as_dtype(keras.config.floatx()) if spec.dtype.is_floating else spec.dtype
    return tf.TensorSpec(spec.shape, dtype)


def _zeros(spec: tf.TensorSpec) -> np.ndarray:
    if spec.dtype == tf.string:
        return np.full(spec.shape, b"", object)
    return np.zeros(spec.shape, spec.dtype.as_numpy_dtype)


def _code(spec: Any) -> str:
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{key!r}: {_code(value)}" for key, value in spec.items()) + "}"
    if isinstance(spec, list | tuple):
        inside = ", ".join(map(_code, spec))
        if isinstance(spec, list):
            return f"[{inside}]"
        return f"({inside},)" if len(spec) == 1 else f"({inside})"
    return f"tf.TensorSpec({spec.shape.as_list()}, tf.{spec.dtype.name})"
