"""Whether one example of a batch can reach another's loss: tried on synthetic inputs.

This cannot be read off a model's layers, which may hold code of the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.rejections import (
    UnsupportedLayerError,
    reject_added_losses,
    reject_rewritten_weights,
    warn_of_dropped_updates,
)
from tfdp.clipping.rules.registry import replaced
from tfdp.clipping.synthetic_inputs import synthetic_pairs, values_of, vocabularies_of

# Where the calls of layers are defined that need no more than one kind of input.
_TRIED = (
    "keras.src.layers.",
    "keras.src.models.functional",
    "keras.src.models.sequential",
    "keras_hub.src.layers.modeling.",
)
# These can pick among other layers, or run what they are given.
_NOT_TRIED = (
    "keras.src.layers.core.lambda_layer",
    "keras.src.layers.preprocessing.image_preprocessing.",
)
_FUNCTIONS = (types.FunctionType, types.MethodType)


def reject_mixing(forward: Forward, batch: Batch, examples: Any = None) -> Batch:
    """Changes one example and looks at the losses and outputs of the others.

    Returns:
      The examples on which the model could be checked.

    Args:
      forward: The model and its loss.
      batch: Gives structure, shapes and dtypes.
      examples: Public examples to use instead of synthetic inputs; see ``synthetic_pairs``.

    Raises:
      UnsupportedLayerError: Names the layer through which examples mix, or says why that could
        not be found out. Or the model adds losses of its own.
    """
    reason, probed, seen, values = "", None, None, values_of(forward)
    unknown, known = _layers_to_try(forward.model), vocabularies_of(forward.model, forward.tables)
    for pair in synthetic_pairs(batch, examples, known, random=_draw_numbers(unknown)):
        try:
            found, other = (losses_and_outputs(forward, values, one) for one in pair)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            if probed is None and not isinstance(error, tf.errors.InvalidArgumentError):
                raise
            reason = f"the model does not take them ({type(error).__name__})"
            continue
        if not np.isfinite([found[0], other[0]]).all():
            reason = "their loss is not finite"
            continue
        _reject_difference(forward, pair, found, other)
        probed = probed or pair[0]
        if seen is None and _first_differs(found, other):  # else nothing was seen
            seen = pair[0]
        if seen is not None and not unknown:
            break
    if seen is not None:
        return seen
    if probed is not None:  # a signal that fades out on its way hides nothing but itself
        warnings.warn(
            f"The outputs of {forward.model.name!r} are the same for all synthetic inputs: layers "
            "that mix examples could go unnoticed. Give examples that are not private as "
            "public_examples.",
            stacklevel=2,
        )
        return probed
    source = "Synthetic inputs" if examples is None else "These public_examples"
    raise UnsupportedLayerError(
        f"{source} cannot show whether the model {forward.model.name!r} "
        f"mixes examples: {reason}. Give two or more examples that are not private, as "
        "public_examples=(x, y)."
    )


def losses_and_outputs(
    forward: Forward, values: tuple[list, list], batch: Batch
) -> tuple[tf.Tensor, Any]:
    """Returns (losses, outputs) for values of the variables."""
    weights, state = values
    mapping = forward.mapping(weights, state, batch.seed)
    with keras.StatelessScope(mapping, collect_losses=True) as scope:
        before = dict(scope.state_mapping)
        found = forward.losses(batch.x, batch.y, batch.sample_weight)
    reject_added_losses(scope.losses)
    reject_rewritten_weights(forward.trainable, before, scope.state_mapping)
    warn_of_dropped_updates(forward.state, before, scope.state_mapping)
    return found


def _reject_difference(forward: Forward, batches: tuple, found: tuple, other: tuple) -> None:
    count = batches[0].mask.shape[0]
    if _others_agree(forward, _arrays(found), _arrays(other), count):
        return
    again = losses_and_outputs(forward, values_of(forward), batches[0])
    if not _others_agree(forward, _arrays(found), _arrays(again), count):
        raise UnsupportedLayerError(
            f"{_first_mixing_call(forward, (batches[0], batches[0]))} draws random numbers that "
            "do not come from a keras.random.SeedGenerator of the layer, so it cannot be "
            "checked. Draw them with keras.random and such a generator, or apply the layer in the "
            "data pipeline, before fit."
        )
    raise UnsupportedLayerError(
        f"One example changes another's loss through {_first_mixing_call(forward, batches)}, so "
        "no example's gradient can be bounded. What is computed for an example must depend on "
        "that example alone."
    )


def _first_mixing_call(forward: Forward, batches: tuple[Batch, Batch]) -> str:
    """Names the first call whose outputs for the other examples change though its inputs do not."""
    count, values = batches[0].mask.shape[0], values_of(forward)
    runs: list[list] = []
    for batch in batches:
        calls: list = []
        with _calls_logged(forward.model, calls):
            losses_and_outputs(forward, values, batch)
        runs.append(calls)
    for (layer, inputs, outputs), (_, other_inputs, other_outputs) in zip(*runs, strict=True):
        same = _others_agree(forward, inputs, other_inputs, count)
        if same and not _others_agree(forward, outputs, other_outputs, count):
            return f"{type(layer).__name__} {layer.name!r}"
    return "the loss"


@contextlib.contextmanager
def _calls_logged(model: keras.Model, calls: list) -> Iterator[None]:
    """Within the block, appends (layer, inputs, outputs) for every call, innermost first."""

    def wrap(layer: keras.layers.Layer, call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            outputs = call(*args, **kwargs)
            calls.append((layer, _arrays((args, kwargs)), _arrays(outputs)))
            return outputs

        return wrapped

    with contextlib.ExitStack() as stack:
        for layer in model._flatten_layers():
            stack.enter_context(replaced(layer, "call", wrap(layer, layer.call)))
        yield


def _arrays(nested: Any) -> list[np.ndarray]:
    leaves = [leaf for leaf in keras.tree.flatten(nested) if tf.is_tensor(leaf)]
    floating = [leaf for leaf in leaves if leaf.dtype.is_floating and leaf.shape.rank]
    return [tf.cast(leaf, tf.float64).numpy() for leaf in floating]


def _others_agree(forward: Forward, a: list[np.ndarray], b: list[np.ndarray], count: int) -> bool:
    """Whether all examples but the first are equal, up to rounding."""
    share = 1e-3 if forward.half_precision else 1e-5
    return all(
        one.shape == other.shape
        and np.allclose(one[1:], other[1:], share, share * _largest(one), equal_nan=True)
        for one, other in zip(a, b, strict=True)
        if len(one) == count
    )


def _largest(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return finite.max(initial=1e-6)


def _first_differs(found: tuple, other: tuple) -> bool:
    """Whether the first example's outputs changed with it; its loss, where no output has floats."""
    ours, theirs = (_arrays(outputs) or _arrays(losses) for losses, outputs in (found, other))
    return any(not np.array_equal(a[:1], b[:1]) for a, b in zip(ours, theirs, strict=True))


def _layers_to_try(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that may mix examples for some inputs only.

    Args:
      model: The model, which is itself among its layers.
    """
    return [layer for layer in model._flatten_layers() if not _is_known(layer)]


def _draw_numbers(layers: Iterable[keras.layers.Layer]) -> bool:
    """Returns whether any of the layers draws random numbers, those of Keras left out."""
    own = (layer for layer in layers if not type(layer).call.__module__.startswith("keras.src."))
    return any(inner._seed_generators for layer in own for inner in layer._flatten_layers())


def _is_known(layer: keras.layers.Layer) -> bool:
    place = type(layer).call.__module__
    if not place.startswith(_TRIED) or place.startswith(_NOT_TRIED):
        return False
    operations = getattr(layer, "operations", [])  # of a functional model
    return all(isinstance(step, keras.layers.Layer) for step in operations) and not any(
        isinstance(value, _FUNCTIONS) and not value.__module__.startswith("keras")
        for value in vars(layer).values()  # an activation of the user's own
    )
