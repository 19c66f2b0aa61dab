"""How the published DP-Cap checkpoints name and lay out the captioner's weights."""

from __future__ import annotations

import dataclasses
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from tfdp.captioner.captioner import Captioner
from tfdp.captioner.captioner_config import CaptionerConfig
from tfdp.captioner.model_size import frozen_shapes, trained_shapes
from tfdp.files.torch_file import CheckpointError, read_torch_file

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
        path: The weight's path inside the captioner.
        layout: How the published tensor is laid out.
        shape: The published tensor's shape.
        trained: Whether training changes the weight.
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
    # (out, color, row, column) -> (row * column * color, out)
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


_NAMES_SHOWN = 8


def load_dpcap_weights(model: Captioner, path: str | os.PathLike[str]) -> None:
    """Sets every weight of the model, fixed tables included, from a DP-Cap checkpoint.

    All or nothing: the model is left as it was unless the file fits it exactly.

    Args:
        model: A captioner with the checkpoint's settings, `max_length` included.
        path: A `.pth` or `.pt` file of PyTorch's zip format, or an `.npz` of the same names.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: The file cannot be read, or its tensors are not the model's; the
            message lists the missing, unexpected and wrongly shaped names.
    """
    set_dpcap_weights(model, read_tensors(path))


def set_dpcap_weights(model: Captioner, tensors: Mapping[str, np.ndarray]) -> None:
    """As `load_dpcap_weights`, from the tensors themselves, by their published names.

    Raises:
        CheckpointError: The tensors are not the model's.
    """
    sources = dpcap_sources(model.config)
    found = {n: t for n, t in tensors.items() if n not in UNUSED and not is_mask_buffer(n)}
    _check_names(
        missing=sorted(sources.keys() - found.keys()),
        unexpected=sorted(found.keys() - sources.keys()),
        misshaped=[
            f"{name} {tuple(found[name].shape)}, expected {source.shape}"
            for name, source in sources.items()
            if name in found and tuple(found[name].shape) != source.shape
        ],
    )
    # A variable's path begins with the model's own name.
    weights = {weight.path.split("/", 1)[1]: weight for weight in model.weights}
    for name, source in sources.items():
        weights[source.path].assign(source.to_keras(found[name]))


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The named tensors of a checkpoint file.

    Of a training checkpoint only the part "model" is read. A prefix "module." or "_module."
    on every name, which wrappers for parallel or private training leave behind, is dropped.

    Args:
        path: A `.pth` or `.pt` file of PyTorch's zip format, or an `.npz`.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: The file is damaged, of another format, or holds no named tensors.
    """
    kind = os.path.splitext(os.fspath(path))[1].lower()
    if kind not in (".npz", ".pth", ".pt"):
        raise CheckpointError(f"{os.fspath(path)}: expected a .pth, .pt or .npz file.")
    content = _read_npz(path) if kind == ".npz" else read_torch_file(path)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{os.fspath(path)}: holds no named tensors.")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, np.ndarray):
            raise CheckpointError(f"{os.fspath(path)}: {name!r} is not a named tensor.")
    for prefix in ("_module.", "module."):
        if all(name.startswith(prefix) for name in content):
            return {name.removeprefix(prefix): tensor for name, tensor in content.items()}
    return dict(content)


def _read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError) as error:
        raise CheckpointError(f"{os.fspath(path)}: not a complete .npz file ({error}).") from error


def _check_names(missing: list[str], unexpected: list[str], misshaped: list[str]) -> None:
    problems = [
        f"{len(names)} {title}: {', '.join(names[:_NAMES_SHOWN])}"
        + (", ..." if len(names) > _NAMES_SHOWN else "")
        for title, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of the wrong shape", misshaped),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            "the checkpoint does not fit the model. "
            + "; ".join(problems)
            + ". Build the Captioner with the checkpoint's settings."
        )
