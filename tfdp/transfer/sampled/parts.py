"""Which weights of a backbone are trained."""

from __future__ import annotations

from collections.abc import Iterator

import keras

_NORMS = (
    keras.layers.LayerNormalization,
    keras.layers.GroupNormalization,
    keras.layers.RMSNormalization,
)
_ADAPTED = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Conv2D)
#: "none" leaves the backbone as it is and trains the head alone.
PARTS = ("none", "bias", "norm", "lora", "last_block", "all")


def train_only(network: keras.Model, part: str, *, rank: int = 4, layers: int = 4) -> None:
    """Freezes a backbone but for a part of it.

    Batch normalisation always keeps its public statistics and weights: in training mode it would
    mix the examples of a batch.

    Args:
        network: a built model; it is changed.
        part: "none", "bias" (all biases, Ben Zaken et al. 2022), "norm" (scales and offsets of
            layer, group and RMS normalisation), "lora" (low-rank additions to the kernels, Hu et
            al. 2022), "last_block" (the last layers that have weights) or "all".
        rank: of the additions of "lora".
        layers: how many "last_block" means.

    Raises:
        ValueError: there is no such part, or this backbone has none.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}.")
    if rank < 1 or layers < 1:
        raise ValueError(f"rank and layers must be at least 1, got {rank} and {layers}.")
    found = [layer for layer in owners(network) if not _is_batch_norm(layer)]
    network.trainable = True
    for layer in owners(network):
        if _is_batch_norm(layer):
            layer.trainable = False
    for variable in network.variables:
        variable.trainable = False
    for variable in _chosen(found, part, rank, layers):
        variable.trainable = True
    if part != "none" and not network.trainable_variables:
        raise ValueError(f"the backbone {network.name!r} has nothing to train for part={part!r}.")


def owners(layer: keras.Layer) -> Iterator[keras.Layer]:
    """The layers with weights of their own, a layer before its parts, in the order of making."""
    if _own(layer):
        yield layer
    inner = layer.layers if isinstance(layer, keras.Model) else _parts_of(layer)
    for child in inner:
        yield from owners(child)


def _parts_of(layer: keras.Layer) -> list[keras.Layer]:
    return list(layer._flatten_layers(include_self=False, recursive=False))


def _chosen(
    found: list[keras.Layer], part: str, rank: int, layers: int
) -> Iterator[keras.Variable]:
    if part == "all":
        yield from (v for layer in found for v in _weights(layer))
    elif part == "bias":
        yield from (v for layer in found for v in _weights(layer) if v.name in ("bias", "beta"))
    elif part == "norm":
        yield from (v for layer in found if isinstance(layer, _NORMS) for v in _weights(layer))
    elif part == "last_block":
        yield from (v for layer in found[-layers:] for v in _weights(layer))
    elif part == "lora":
        for layer in found:
            if isinstance(layer, _ADAPTED) and not isinstance(layer, keras.layers.DepthwiseConv2D):
                layer.enable_lora(rank)
                yield from (layer.lora_kernel_a, layer.lora_kernel_b)


def _weights(layer: keras.Layer) -> list[keras.Variable]:
    """Its own weights, without the state of random number generators."""
    return [v for v in _own(layer) if "seed" not in v.path]


def _own(layer: keras.Layer) -> list[keras.Variable]:
    """What it made itself, not its parts: `layer.variables` has both."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def _is_batch_norm(layer: keras.Layer) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization)
