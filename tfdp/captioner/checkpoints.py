"""Filling a captioner with the weights of a published DP-Cap file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping

import numpy as np

from tfdp.captioner.captioner import Captioner
from tfdp.captioner.dpcap_names import UNUSED, dpcap_sources, is_mask_buffer
from tfdp.files.torch_file import read_torch_file
from tfdp.files.torch_pickle import CheckpointError

_NAMES_SHOWN = 8


def load_dpcap_weights(model: Captioner, path: str | os.PathLike[str]) -> None:
    """Sets every weight of the model, fixed tables included, from a DP-Cap checkpoint.

    All or nothing: the model is left as it was unless the file fits it exactly.

    Args:
        model: a captioner with the checkpoint's settings, `max_length` included.
        path: a `.pth` or `.pt` file of PyTorch's zip format, or an `.npz` of the same names.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file cannot be read, or its tensors are not the model's; the
            message lists the missing, unexpected and wrongly shaped names.
    """
    set_dpcap_weights(model, read_tensors(path))


def set_dpcap_weights(model: Captioner, tensors: Mapping[str, np.ndarray]) -> None:
    """As `load_dpcap_weights`, from the tensors themselves, by their published names.

    Raises:
        CheckpointError: the tensors are not the model's.
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
        path: a `.pth` or `.pt` file of PyTorch's zip format, or an `.npz`.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is damaged, of another format, or holds no named tensors.
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
