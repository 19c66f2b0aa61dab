"""How the published DP-Cap checkpoints name and lay out the captioner's weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from tfdp.captioner.config import CaptionerConfig
from tfdp.captioner.size import frozen_shapes, trained_shapes

Layout = Literal["same", "linear", "patches", "table", "vector"]

#: Tensors of the published files that the captioner has no use for: those of masked training
#: and a table and a type vector of a text encoder that the decoder does not have.
UNUSED = frozenset(
    {"text_pos_embed", "mask_token", "mask_token_text", "encoder_text_type_embedding"}
)


@dataclasses.dataclass(frozen=True)
class Source:
    """Where one weight of the captioner comes from.

    Attributes:
        path: the weight's path inside the captioner.
        layout: how the published tensor is laid out.
        shape: the published tensor's shape.
        trained: whether training changes the weight.
    """

    path: str
    layout: Layout
    shape: tuple[int, ...]
    trained: bool

    def to_keras(self, tensor: np.ndarray) -> np.ndarray:
        """The published tensor, or a gradient of its layout, as the captioner stores it."""
        return _TO_KERAS[self.layout](tensor)


def is_mask_buffer(name: str) -> bool:
    """Whether the tensor is a decoder layer's causal mask, which the file calls a bias."""
    return name.startswith("decoder.layers.") and name.endswith(".self_attn.bias")


def dpcap_sources(config: CaptionerConfig) -> dict[str, Source]:
    """The captioner's weights by their published names, all of them and no others."""
    shapes = {**trained_shapes(config), **frozen_shapes(config)}
    frozen = frozen_shapes(config)
    return {
        name: Source(path, layout, _published_shape(shapes[path], layout), path not in frozen)
        for name, (path, layout) in _names(config).items()
    }


_TO_KERAS: dict[Layout, Callable[[np.ndarray], np.ndarray]] = {
    "same": lambda tensor: tensor,
    "linear": np.transpose,  # (out, in) -> (in, out)
    # (out, colour, row, column) -> (row * column * colour, out)
    "patches": lambda tensor: tensor.transpose(2, 3, 1, 0).reshape(-1, tensor.shape[0]),
    "table": lambda tensor: tensor[0],  # (1, L, D) -> (L, D)
    "vector": lambda tensor: tensor.reshape(-1),  # (1, 1, D) -> (D,)
}


def _published_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    if layout == "patches":
        side = math.isqrt(shape[0] // 3)
        return (shape[1], 3, side, side)
    if layout == "linear":
        return shape[::-1]
    return {"same": (), "table": (1,), "vector": (1, 1)}[layout] + shape


def _names(config: CaptionerConfig) -> dict[str, tuple[str, Layout]]:
    names: dict[str, tuple[str, Layout]] = {
        "cls_token": ("encoder/class_token/token", "vector"),
        "pos_embed": ("encoder/positions/positions", "table"),
        "encoder_image_type_embedding": ("encoder/positions/type", "vector"),
        "decoder_pos_embed": ("memory_positions/positions", "table"),
        "decoder_image_type_embedding": ("memory_positions/type", "vector"),
        "text_decoder_pos_embed": ("decoder/positions/positions", "table"),
        "decoder_text_type_embedding": ("decoder/positions/type", "vector"),
        "patch_embed.proj.weight": ("encoder/patch_embedding/kernel", "patches"),
        "patch_embed.proj.bias": ("encoder/patch_embedding/bias", "same"),
        "text_embedding_layer_SimVLM.weight": ("decoder/token_embedding/embeddings", "same"),
    }
    for i in range(config.encoder_depth):
        ours, theirs = f"encoder/block_{i}", f"blocks.{i}"
        names |= _norm(f"{ours}/norm_1", f"{theirs}.norm1")
        names |= _linear(f"{ours}/attention/qkv", f"{theirs}.attn.qkv", bias=False)
        names |= _linear(f"{ours}/attention/output", f"{theirs}.attn.proj")
        names |= _norm(f"{ours}/norm_2", f"{theirs}.norm2")
        names |= _linear(f"{ours}/mlp/hidden", f"{theirs}.mlp.fc1")
        names |= _linear(f"{ours}/mlp/output", f"{theirs}.mlp.fc2")
    names |= _norm("encoder/norm", "norm")
    names |= _linear("bridge", "decoder_embed")
    for i in range(config.decoder_depth):
        ours, theirs = f"decoder/block_{i}", f"decoder.layers.{i}"
        for path, name in {
            "self_attention/qkv": "self_attn.c_attn",
            "self_attention/output": "self_attn.c_proj",
            "cross_attention/query": "multihead_attn.q_proj",
            "cross_attention/key_value": "multihead_attn.kv_proj",
            "cross_attention/output": "multihead_attn.c_proj",
            "mlp/hidden": "linear1",
            "mlp/output": "linear2",
        }.items():
            names |= _linear(f"{ours}/{path}", f"{theirs}.{name}", bias=False)
        for n in (1, 2, 3):
            names |= _norm(f"{ours}/norm_{n}", f"{theirs}.norm{n}")
    names |= _norm("decoder/head_norm", "decoder_pred_text.0")
    return names | _linear("decoder/head", "decoder_pred_text.1")


def _linear(ours: str, theirs: str, bias: bool = True) -> dict[str, tuple[str, Layout]]:
    names: dict[str, tuple[str, Layout]] = {f"{theirs}.weight": (f"{ours}/kernel", "linear")}
    if bias:
        names[f"{theirs}.bias"] = (f"{ours}/bias", "same")
    return names


def _norm(ours: str, theirs: str) -> dict[str, tuple[str, Layout]]:
    return {
        f"{theirs}.weight": (f"{ours}/gamma", "same"),
        f"{theirs}.bias": (f"{ours}/beta", "same"),
    }
