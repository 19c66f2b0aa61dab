"""Writes files as PyTorch does, without PyTorch: good ones, and ones that it never would."""

import io
import pickle
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest


class FakeTensor:
    """A tensor to be pickled: its buffer, and the view that it takes of it."""

    def __init__(self, values: np.ndarray, storage: str, shape, strides, offset: int = 0) -> None:
        self.values = values
        self.storage = storage
        self.view = (offset, tuple(shape), tuple(strides))


class TorchWriter:
    """Pickles `FakeTensor`s under the names that PyTorch uses.

    Args:
        monkeypatch: puts an empty `torch` in place while a test runs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
        self.torch: Any = torch
        self.rebuild = _named(utils, "_rebuild_tensor_v2", types.FunctionType)
        torch.__dict__["_utils"] = utils
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(self, path: Path, content: Any, byteorder: str = "little") -> Path:
        """Writes `content` in the zip format."""
        file, buffers = io.BytesIO(), {}
        writer, torch, rebuild = self, self.torch, self.rebuild

        class Pickler(pickle.Pickler):
            def reducer_override(self, obj: Any) -> Any:
                if not isinstance(obj, FakeTensor):
                    return NotImplemented
                key = str(len(buffers))
                buffers[key] = obj.values.tobytes()
                if not hasattr(torch, obj.storage):
                    _named(torch, obj.storage, type)
                handle = _Handle(getattr(torch, obj.storage), key, obj.values.size)
                return rebuild, (handle, *obj.view, False, {})

            def persistent_id(self, obj: Any) -> Any:
                if isinstance(obj, _Handle):
                    return ("storage", obj.kind, obj.key, "cpu", obj.size)
                return None

        Pickler(file, protocol=2).dump(content)
        return writer.write_zip(path, file.getvalue(), buffers, byteorder)

    @staticmethod
    def write_zip(
        path: Path, table: bytes, buffers: dict[str, bytes] | None = None, byteorder: str = "little"
    ) -> Path:
        """Writes a zip file around a pickle."""
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{path.stem}/data.pkl", table)
            archive.writestr(f"{path.stem}/byteorder", byteorder)
            for key, data in (buffers or {}).items():
                archive.writestr(f"{path.stem}/data/{key}", data)
        return path


class _Handle:
    def __init__(self, kind: Any, key: str, size: int) -> None:
        self.kind, self.key, self.size = kind, key, size


def _named(module: types.ModuleType, name: str, kind: type) -> Any:
    """A function or class that pickles as `module.name`."""
    if kind is types.FunctionType:

        def made() -> None:
            pass

        made.__module__, made.__name__, made.__qualname__ = module.__name__, name, name
        module.__dict__[name] = made
    else:
        module.__dict__[name] = type(name, (), {"__module__": module.__name__})
    return module.__dict__[name]
