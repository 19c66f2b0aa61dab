"""What private training rejects: whatever would let an example bypass the clipping or the noise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf


class ScalarLossError(ValueError):
    """The loss does not give one value per example, so examples cannot be clipped one by one."""


class WrongRuleError(ValueError):
    """The rule of a layer gives other gradients than differentiating the layer does."""


class UnsupportedLayerError(ValueError):
    """A layer mixes examples, or has no rule in the engine that was asked for."""


class CancellingError(UnsupportedLayerError):
    """The uses of a weight nearly cancel, so that rounding hides the norm of their sum."""


_PICKED_ONCE = (
    "picks its augmentations with Python's random module, once, when the step is traced, so "
    "training would not run what was checked. Apply it to single images in the data pipeline, "
    "before fit"
)
_JOINS = (
    "combines every example with another one of the batch, so that no example's gradient can be "
    "bounded. Leave it out, in the data pipeline too, where it would put one example into two"
)

#: Layers of Keras and KerasCV that are rejected by the names of their classes, and why.
_REJECTED = {
    "AugMix": _PICKED_ONCE,
    "CutMix": _JOINS,
    "FourierMix": _JOINS,
    "MixUp": _JOINS,
    "Mosaic": _JOINS,
}


def _reject_by_name(layer: keras.layers.Layer) -> None:
    for base in type(layer).__mro__:
        if base.__module__.split(".")[0] in ("keras", "keras_cv") and base.__name__ in _REJECTED:
            why = _REJECTED[base.__name__]
            raise UnsupportedLayerError(f"{type(layer).__name__} {layer.name!r} {why}.")


def reject_mixing_layers(model: keras.Model) -> None:
    """Raises if a layer mixes the examples of a batch.

    Batch normalization is accepted where it is frozen (``layer.trainable = False``): it then
    uses its stored moments, in training too.

    Raises:
      UnsupportedLayerError: Names the layer and the way out.
    """
    for layer in model._flatten_layers(include_self=True, recursive=True):
        described = f"{type(layer).__name__} {layer.name!r}"
        _reject_by_name(layer)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise UnsupportedLayerError(
                f"{described} computes its moments over the batch, so an example's gradient "
                "cannot be bounded. Freeze it (layer.trainable = False, before compile), or "
                "use GroupNormalization or LayerNormalization."
            )
        if isinstance(layer, keras.layers.LayerNormalization) and layer.built:
            axes = layer.axis if isinstance(layer.axis, list) else [layer.axis]
            if 0 in axes:
                raise UnsupportedLayerError(
                    f"{described} normalizes over the batch axis (axis={axes}), so examples mix. "
                    "Choose axes without 0."
                )
        if _pads_to_the_longest(layer):
            raise UnsupportedLayerError(
                f"{described} pads every text to the longest one of the batch, so examples mix. "
                "Give it output_sequence_length."
            )
        if getattr(layer, "stateful", False):
            raise UnsupportedLayerError(
                f"{described} is stateful: it passes its state from the examples of one batch to "
                "those of the next. Create it with stateful=False."
            )
        if layer.activity_regularizer is not None:
            raise UnsupportedLayerError(
                f"{described} has an activity regularizer, a loss over the whole batch that "
                "cannot be clipped example by example. Remove it, or add the penalty to the loss."
            )


def _pads_to_the_longest(layer: keras.layers.Layer) -> bool:
    if not isinstance(layer, keras.layers.TextVectorization):
        return False
    settings = layer.get_config()
    return settings["output_mode"] == "int" and settings["output_sequence_length"] is None


def reject_added_losses(losses: list) -> None:
    """Raises if layers added losses with ``add_loss`` while the model was called.

    Raises:
      UnsupportedLayerError: They have no value per example.
    """
    if losses:
        raise UnsupportedLayerError(
            f"Layers of the model added {len(losses)} losses with add_loss(), which cannot be "
            "clipped example by example. Return what they are computed from as an output of the "
            "model, and give compile() a loss for it."
        )


def reject_rewritten_weights(weights: Sequence[keras.Variable], before: dict, after: dict) -> None:
    """Raises if layers assign to trainable weights while the model runs.

    Raises:
      UnsupportedLayerError: Names the weights and the way out.
    """
    rewritten = [v.path for v in weights if before[id(v)] is not after.get(id(v))]
    if rewritten:
        raise UnsupportedLayerError(
            f"The model rewrites {', '.join(rewritten)} while it runs, as SpectralNormalization "
            "does, so that the gradient is not that of the trained weight. To bound weights, use a "
            "constraint (kernel_constraint=...), which acts after the step."
        )


def warn_of_dropped_updates(state: Sequence[keras.Variable], before: dict, after: dict) -> None:
    """Warns if layers assigned to variables that are not trained, such as running moments.

    The new values would depend on private examples without noise, so they are thrown away.
    """
    dropped = [v.path for v in state if before[id(v)] is not after.get(id(v))]
    if dropped:
        warnings.warn(
            f"The model updates {', '.join(dropped)} while it trains. These updates would contain "
            "private data without noise, so they are dropped.",
            stacklevel=2,
        )


#: What operations that keep something beyond the step have names that begin with.
_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "LookupTableI", "QueueEnqueue")


def reject_writes(graph: tf.Graph, model: keras.Model) -> None:
    """Raises if the model, traced in ``graph``, writes to a ``tf.Variable``, a table or a queue.

    What it writes would contain private data without noise. Variables of Keras are handled
    elsewhere: while the model is checked, assignments to them are noticed and dropped.

    Raises:
      UnsupportedLayerError: Names the operations and the way out.
    """
    found = sorted(name for name, kind in _operations(graph) if kind.startswith(_WRITES))
    if found:
        raise UnsupportedLayerError(
            f"The model {model.name!r} writes to a tf.Variable, table or queue while it trains "
            f"({', '.join(found)}), which would keep private data without noise. Keep such state "
            "in weights of the layer (self.add_weight(..., trainable=False)), whose updates are "
            "dropped, or remove it."
        )


#: Operations that draw random numbers from a state that TensorFlow keeps.
_DRAWS = {
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGamma",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
}


def reject_unseeded_draws(graph: tf.Graph, model: keras.Model) -> None:
    """Raises if the model draws random numbers that do not come from Keras's seeds.

    Two forward passes then never agree, so comparing them shows nothing. After
    ``keras.utils.set_random_seed`` they may agree while the model is checked, and not later.

    Raises:
      UnsupportedLayerError: Names the operations and the way out.
    """
    found = sorted(name for name, kind in _operations(graph) if kind in _DRAWS)
    if found:
        raise UnsupportedLayerError(
            f"The model {model.name!r} draws random numbers that do not come from a "
            f"keras.random.SeedGenerator ({', '.join(found)}). Use keras.random with the layer's "
            "own SeedGenerator, or apply the layer in the data pipeline, before fit."
        )


def _operations(graph: tf.Graph) -> Iterator[tuple[str, str]]:
    """Yields names and kinds of the operations of a graph and of its functions."""
    yield from ((operation.name, operation.type) for operation in graph.get_operations())
    for body in graph.as_graph_def().library.function:
        yield from ((node.name, node.op) for node in body.node_def)
