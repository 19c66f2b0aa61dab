"""The models whose private steps are timed, with synthetic batches and losses.

Plain Keras, but for the captioner itself, so that a peer's Keras, of another version or on another
backend, builds the same models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model with what it is trained on.

    Attributes:
      build: Makes the model.
      batch: From a number of examples to (x, y).
      loss: Keras loss.
    """

    build: Callable[[], keras.Model]
    batch: Callable[[int], tuple[Any, Any]]
    loss: Any


def _tokens(count: int, length: int, vocabulary: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, vocabulary, (count, length)).astype("int32")


def _images(count: int, side: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, side, side, 3)).astype("float32")


def _labelled_images(side: int, classes: int) -> Callable[[int], tuple[Any, Any]]:
    return lambda count: (_images(count, side), _tokens(count, 1, classes)[:, 0])


# Sizes of a captioner: those of CaptionerConfig, as far as both captioners below need them.
_ANCHOR = {
    "image_size": 64, "patch_size": 8, "vocab_size": 4096, "max_length": 41,
    "encoder_width": 192, "encoder_depth": 6, "encoder_heads": 3,
    "decoder_width": 192, "decoder_depth": 3, "decoder_heads": 3,
}  # fmt: skip
_QUICKSTART = {
    "image_size": 32, "patch_size": 8, "vocab_size": 3041, "max_length": 12,
    "encoder_width": 64, "encoder_depth": 3, "encoder_heads": 4,
    "decoder_width": 64, "decoder_depth": 2, "decoder_heads": 4,
}  # fmt: skip


def _captioner(sizes: dict[str, Any], plain: bool = False) -> Workload:
    """The captioner, or one of plain Keras layers with the same sizes, for peers."""

    def build() -> keras.Model:
        if plain:
            return _plain_captioner(**sizes)
        from tfdp.captioner import Captioner, CaptionerConfig

        return Captioner(CaptionerConfig(**sizes))

    def batch(count: int) -> tuple[Any, Any]:
        ids = _tokens(count, sizes["max_length"], sizes["vocab_size"])
        images = _images(count, sizes["image_size"])
        return {"image": images, "tokens": ids[:, :-1]}, ids[:, 1:]

    return Workload(build, batch, _cross_entropy())


def _plain_captioner(
    image_size: int, patch_size: int, vocab_size: int, max_length: int,
    encoder_width: int, encoder_depth: int, encoder_heads: int,
    decoder_width: int, decoder_depth: int, decoder_heads: int,
) -> keras.Model:  # fmt: skip
    images = layers.Input((image_size, image_size, 3), name="image")
    ids = layers.Input((max_length - 1,), dtype="int32", name="tokens")
    memory = _patches(images, patch_size, encoder_width)
    for _ in range(encoder_depth):
        memory = _transformer_block(memory, encoder_heads)
    memory = layers.LayerNormalization(epsilon=1e-6)(memory)
    x = layers.Embedding(vocab_size, decoder_width)(ids)
    x = Positions(max_length - 1, decoder_width)(x)
    for _ in range(decoder_depth):
        x = _transformer_block(x, decoder_heads, causal=True, memory=memory)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return keras.Model({"image": images, "tokens": ids}, layers.Dense(vocab_size)(x))


def _cross_entropy() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _patches(images: Any, size: int, width: int) -> Any:
    x = layers.Conv2D(width, size, strides=size)(images)
    count = x.shape[1] * x.shape[2]
    return Positions(count, width)(layers.Reshape((count, width))(x))


def _transformer_block(x: Any, heads: int, causal: bool = False, memory: Any = None) -> Any:
    width = x.shape[-1]
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=causal)
    if memory is not None:
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, memory)
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * width, activation="gelu")(y)
    return x + layers.Dense(width)(y)


class Positions(layers.Layer):
    """Adds a learned table, by an Embedding that reads positions [1, T]."""

    def __init__(self, length: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.length = length
        self.table = layers.Embedding(length, width)

    def call(self, x: Any) -> Any:
        return x + self.table(np.arange(self.length, dtype="int32")[np.newaxis])


def _vision_transformer() -> Workload:
    """ViT-Ti/16 at 224: 5.7 M parameters, 196 tokens, mean pooled, 1000 classes."""

    def build() -> keras.Model:
        images = layers.Input((224, 224, 3))
        x = _patches(images, 16, 192)
        for _ in range(12):
            x = _transformer_block(x, heads=3)
        x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
        return keras.Model(images, layers.Dense(1000)(x))

    return Workload(build, _labelled_images(224, 1000), _cross_entropy())


def _convnet() -> Workload:
    """ResNet-like, group norm, CIFAR size: 2.8 M parameters, widths 64, 128, 256."""

    def block(x: Any, width: int, stride: int) -> Any:
        y = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
        y = layers.ReLU()(layers.GroupNormalization(16)(y))
        y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
        y = layers.GroupNormalization(16)(y)
        if stride > 1 or x.shape[-1] != width:
            x = layers.Conv2D(width, 1, stride, use_bias=False)(x)
        return layers.ReLU()(x + y)

    def build() -> keras.Model:
        images = layers.Input((32, 32, 3))
        x = layers.Conv2D(64, 3, padding="same", use_bias=False)(images)
        x = layers.ReLU()(layers.GroupNormalization(16)(x))
        for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
            x = block(x, width, stride)
        return keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

    return Workload(build, _labelled_images(32, 10), _cross_entropy())


def _language_model() -> Workload:
    """GPT-like, 4 blocks of width 256, vocabulary 32k tied, 64 tokens: 11.4 M parameters."""

    def build() -> keras.Model:
        ids = layers.Input((64,), dtype="int32")
        embed = layers.ReversibleEmbedding(32_000, 256)
        x = Positions(64, 256)(embed(ids))
        for _ in range(4):
            x = _transformer_block(x, heads=4, causal=True)
        return keras.Model(ids, embed(layers.LayerNormalization()(x), reverse=True))

    def batch(count: int) -> tuple[Any, Any]:
        ids = _tokens(count, 65, 32_000)
        return ids[:, :-1], ids[:, 1:]

    return Workload(build, batch, _cross_entropy())


def _tagger() -> Workload:
    """Two LSTM layers of 128 units over 64 tokens, vocabulary 8000, 20 tags."""

    def build() -> keras.Model:
        ids = layers.Input((64,), dtype="int32")
        x = layers.Embedding(8000, 128)(ids)
        for _ in range(2):
            x = layers.LSTM(128, return_sequences=True)(x)
        return keras.Model(ids, layers.Dense(20)(x))

    def batch(count: int) -> tuple[Any, Any]:
        return _tokens(count, 64, 8000), _tokens(count, 64, 20)

    return Workload(build, batch, _cross_entropy())


def _digits() -> Workload:
    """The convolutional network of many an introduction: 28 px, 10 classes, 35 thousand weights."""

    def build() -> keras.Model:
        return keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10),
            ]
        )

    return Workload(
        build,
        lambda count: (_images(count, 28)[..., :1], _tokens(count, 1, 10)[:, 0]),
        _cross_entropy(),
    )


def _perceptron() -> Workload:
    """784 numbers, a hidden layer of 256, 10 classes: 0.2 M parameters."""

    def build() -> keras.Model:
        return keras.Sequential(
            [layers.Input((784,)), layers.Dense(256, activation="relu"), layers.Dense(10)]
        )

    def batch(count: int) -> tuple[Any, Any]:
        return _images(count, 28)[..., 0].reshape(count, 784), _tokens(count, 1, 10)[:, 0]

    return Workload(build, batch, _cross_entropy())


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "captioner": lambda: _captioner(_ANCHOR),
    "quickstart": lambda: _captioner(_QUICKSTART),
    "plain_captioner": lambda: _captioner(_ANCHOR, plain=True),
    "plain_quickstart": lambda: _captioner(_QUICKSTART, plain=True),
    "vit": _vision_transformer,
    "convnet": _convnet,
    "gpt": _language_model,
    "lstm": _tagger,
    "digits": _digits,
    "mlp": _perceptron,
}
