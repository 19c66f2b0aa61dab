"""What private training rejects: what would let an example reach past the clipping or the noise."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdp.clipping.forward import Forward


class ScalarLossError(ValueError):
    """The loss does not give one value per example, so examples cannot be clipped apart."""


class WrongRuleError(ValueError):
    """The rule of a layer gives other gradients than differentiating the layer does."""


class UnsupportedLayerError(ValueError):
    """A layer mixes examples, or has no rule in the engine that was asked for."""


class CancellingError(UnsupportedLayerError):
    """Uses of a weight cancel so far that rounding hides the norm of their sum."""


def refuse_mixing_layers(model: keras.Model) -> None:
    """Raises if a layer mixes the examples of a batch.

    Batch normalization is accepted where it is frozen (``layer.trainable = False``): it then
    uses its stored moments, in training too.

    Raises:
      UnsupportedLayerError: Names the layer and the way out.
    """
    for layer in model._flatten_layers(include_self=True, recursive=True):
        described = f"{type(layer).__name__} {layer.name!r}"
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
        if getattr(layer, "stateful", False):
            raise UnsupportedLayerError(
                f"{described} is stateful: it hands what it has seen of one batch's examples to "
                "those of the next. Make it with stateful=False."
            )
        if layer.activity_regularizer is not None:
            raise UnsupportedLayerError(
                f"{described} has an activity regularizer, a loss over the whole batch that "
                "cannot be clipped by example. Remove it, or add the penalty to the loss."
            )


def refuse_added_losses(losses: list) -> None:
    """Raises if layers added losses with ``add_loss`` while the model was called.

    Raises:
      UnsupportedLayerError: They are not told apart by example.
    """
    if losses:
        raise UnsupportedLayerError(
            f"Layers of the model added {len(losses)} losses with add_loss(), which cannot be "
            "clipped by example. Return what they need as an output of the model, and give "
            "compile() a loss for it."
        )


def refuse_rewritten_weights(forward: Forward, before: dict, after: dict) -> None:
    """Raises if layers assign to trainable weights while the model runs.

    Raises:
      UnsupportedLayerError: Names the weights and the way out.
    """
    rewritten = [v.path for v in forward.trainable if before[id(v)] is not after.get(id(v))]
    if rewritten:
        raise UnsupportedLayerError(
            f"The model rewrites {', '.join(rewritten)} while it runs, as SpectralNormalization "
            "does, so that the gradient is not that of the weight which is trained. Bound weights "
            "by a constraint (kernel_constraint=...), which acts after the update."
        )


def warn_of_dropped_updates(forward: Forward, before: dict, after: dict) -> None:
    """Warns if layers assigned to variables that are not trained, such as running moments.

    The new values would depend on private records without noise, so they are thrown away.
    """
    dropped = [v.path for v in forward.state if before[id(v)] is not after.get(id(v))]
    if dropped:
        warnings.warn(
            f"The model updates {', '.join(dropped)} while it trains. These updates would hold "
            "private data without noise; they are dropped.",
            stacklevel=2,
        )


#: What operations that keep something beyond the step have names that begin with.
_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "LookupTableI", "QueueEnqueue")


def refuse_writes(graph: tf.Graph, model: keras.Model) -> None:
    """Raises if the model, traced in ``graph``, writes to a ``tf.Variable``, a table or a queue.

    What it writes would hold private data without noise. The variables of Keras are no concern
    here: while the model is looked over, assignments to them are seen and dropped.

    Raises:
      UnsupportedLayerError: Names the operations and the way out.
    """
    bodies = graph.as_graph_def().library.function
    nodes = [node for body in bodies for node in body.node_def]
    operations = [*((op.name, op.type) for op in graph.get_operations())]
    operations += [(node.name, node.op) for node in nodes]
    found = sorted(name for name, kind in operations if kind.startswith(_WRITES))
    if found:
        raise UnsupportedLayerError(
            f"The model {model.name!r} writes to a tf.Variable, table or queue while it trains "
            f"({', '.join(found)}), past the noise. Keep such state in weights of the layer "
            "(self.add_weight(..., trainable=False)), whose steps are dropped, or do without."
        )
