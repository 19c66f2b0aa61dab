"""Which layers of a model the model check has to try on many kinds of inputs.

Keras's own layers have been tried (tests/clipping/layer_table.csv): what one of them does with a
batch does not depend on the numbers in it. Code of the user's own may mix examples for some inputs
only, such as pixels, or for some random numbers only.
"""

from __future__ import annotations

import types
from collections.abc import Iterable

import keras

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


def layers_to_try(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that may mix examples for some inputs only.

    Args:
      model: The model, which is itself among its layers.
    """
    return [layer for layer in model._flatten_layers() if not _is_known(layer)]


def draw_numbers(layers: Iterable[keras.layers.Layer]) -> bool:
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
