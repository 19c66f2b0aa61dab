"""What a captioner costs, by arithmetic alone: weights, FLOPs, bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

from tfdp.captioner.captioner_config import CaptionerConfig

_FLOAT32_BYTES = 4


@dataclasses.dataclass(frozen=True)
class LayerShape:
    """One layer with trained weights.

    Attributes:
        path: The layer's path inside the captioner, such as "encoder/block_0/mlp/hidden".
        kind: Which Keras layer it is.
        rows: Tokens of one example that go through it.
        inputs: Channels of a token before it (ids of the vocabulary for an embedding).
        outputs: Channels of a token after it.
        bias: Whether a dense layer has a bias.
    """

    path: str
    kind: Literal["dense", "norm", "embedding"]
    rows: int
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight, by its name in Keras."""
        if self.kind == "norm":
            return {"gamma": (self.inputs,), "beta": (self.inputs,)}
        if self.kind == "embedding":
            return {"embeddings": (self.inputs, self.outputs)}
        bias = {"bias": (self.outputs,)} if self.bias else {}
        return {"kernel": (self.inputs, self.outputs), **bias}

    @property
    def forward_flops(self) -> int:
        """Of the matrix product, 2 for each multiply-add; nothing for a norm or a look-up."""
        return 2 * self.rows * self.inputs * self.outputs if self.kind == "dense" else 0

    @property
    def recorded_values(self) -> int:
        """Numbers that the layer's input and output hold, for one example."""
        return self.rows * ((1 if self.kind == "embedding" else self.inputs) + self.outputs)


def trained_layers(config: CaptionerConfig) -> Iterator[LayerShape]:
    """Every layer with trained weights, for captions of the full `max_length`."""
    yield from _encoder_layers(config)
    yield LayerShape(
        "bridge",
        "dense",
        config.num_image_tokens,
        config.encoder_width,
        config.decoder_width,
        bias=True,
    )
    yield from _decoder_layers(config)


def trained_shapes(config: CaptionerConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every trained weight, by its path inside the captioner."""
    return {
        f"{layer.path}/{name}": shape
        for layer in trained_layers(config)
        for name, shape in layer.weight_shapes.items()
    }


def frozen_shapes(config: CaptionerConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every weight that is never trained, by its path inside the captioner."""
    tokens, width, text = config.num_image_tokens, config.encoder_width, config.decoder_width
    return {
        "encoder/class_token/token": (width,),
        "encoder/positions/positions": (tokens, width),
        "encoder/positions/type": (width,),
        "memory_positions/positions": (tokens, text),
        "memory_positions/type": (text,),
        "decoder/positions/positions": (config.max_length, text),
        "decoder/positions/type": (text,),
    }


def count_parameters(config: CaptionerConfig) -> int:
    """Number of trained weights (scalars); fixed tables and vectors do not count."""
    return sum(math.prod(shape) for shape in trained_shapes(config).values())


def estimate_flops_per_example(config: CaptionerConfig) -> int:
    """Floating-point operations of forward and backward for one picture and full caption.

    A multiply-add counts as 2. A layer's backward pass costs twice its forward pass, one
    product for the input's gradient and one for the weight's; the patch embedding, whose
    input needs no gradient, once. Attention adds 4 T S D for T queries and S keys of width D
    (scores and mixture), three times over. Norms, softmax, GELU and the clipping engine's
    per-example norms do not count.
    """
    layers = list(trained_layers(config))
    dense = sum(layer.forward_flops for layer in layers)
    attention = sum(4 * t * s * width for t, s, width, _ in _attentions(config))
    return 3 * (dense + attention) - layers[0].forward_flops


def estimate_activation_bytes_per_example(config: CaptionerConfig) -> int:
    """Bytes kept between forward and backward for one picture and full caption, in float32.

    The input and the output of every layer with trained weights, and the attention weights,
    H T S numbers for H heads, T queries and S keys. What a compiler recomputes or shares
    is not taken off; halve the figure for bfloat16.
    """
    recorded = sum(layer.recorded_values for layer in trained_layers(config))
    attention = sum(heads * t * s for t, s, _, heads in _attentions(config))
    return _FLOAT32_BYTES * (recorded + attention)


def _attentions(config: CaptionerConfig) -> Iterator[tuple[int, int, int, int]]:
    """(queries, keys, width, heads) of every attention."""
    image, text = config.num_image_tokens, config.max_length - 1
    for _ in range(config.encoder_depth):
        yield image, image, config.encoder_width, config.encoder_heads
    for _ in range(config.decoder_depth):
        for keys in (text, image):
            yield text, keys, config.decoder_width, config.decoder_heads


def _encoder_layers(config: CaptionerConfig) -> Iterator[LayerShape]:
    rows, width = config.num_image_tokens, config.encoder_width
    hidden = config.mlp_ratio * width
    yield LayerShape(
        "encoder/patch_embedding",
        "dense",
        config.num_patches,
        3 * config.patch_size**2,
        width,
        bias=True,
    )
    for i in range(config.encoder_depth):
        block = f"encoder/block_{i}"
        yield LayerShape(f"{block}/norm_1", "norm", rows, width, width)
        yield LayerShape(f"{block}/attention/qkv", "dense", rows, width, 3 * width)
        yield LayerShape(f"{block}/attention/output", "dense", rows, width, width, bias=True)
        yield LayerShape(f"{block}/norm_2", "norm", rows, width, width)
        yield LayerShape(f"{block}/mlp/hidden", "dense", rows, width, hidden, bias=True)
        yield LayerShape(f"{block}/mlp/output", "dense", rows, hidden, width, bias=True)
    yield LayerShape("encoder/norm", "norm", rows, width, width)


def _decoder_layers(config: CaptionerConfig) -> Iterator[LayerShape]:
    rows, width, vocab = config.max_length - 1, config.decoder_width, config.vocab_size
    hidden = config.mlp_ratio * width
    yield LayerShape("decoder/token_embedding", "embedding", rows, vocab, width)
    for i in range(config.decoder_depth):
        block = f"decoder/block_{i}"
        yield LayerShape(f"{block}/self_attention/qkv", "dense", rows, width, 3 * width)
        yield LayerShape(f"{block}/self_attention/output", "dense", rows, width, width)
        yield LayerShape(f"{block}/norm_1", "norm", rows, width, width)
        yield LayerShape(f"{block}/cross_attention/query", "dense", rows, width, width)
        yield LayerShape(
            f"{block}/cross_attention/key_value",
            "dense",
            config.num_image_tokens,
            width,
            2 * width,
        )
        yield LayerShape(f"{block}/cross_attention/output", "dense", rows, width, width)
        yield LayerShape(f"{block}/norm_2", "norm", rows, width, width)
        yield LayerShape(f"{block}/mlp/hidden", "dense", rows, width, hidden)
        yield LayerShape(f"{block}/mlp/output", "dense", rows, hidden, width)
        yield LayerShape(f"{block}/norm_3", "norm", rows, width, width)
    yield LayerShape("decoder/head_norm", "norm", rows, width, width)
    yield LayerShape("decoder/head", "dense", rows, width, vocab, bias=True)
