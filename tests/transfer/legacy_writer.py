"""PyTorch files in the legacy format, from the zip ones that the models' tests write."""

import pickle
import zipfile
from pathlib import Path

import numpy as np

from tests.files.torch_writer import FakeTensor, TorchWriter

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"long": 4}}


def tensor(values: np.ndarray) -> FakeTensor:
    """A whole array as a tensor."""
    strides = [stride // values.itemsize for stride in values.strides]
    kind = {"float32": "FloatStorage", "int64": "LongStorage"}[values.dtype.name]
    return FakeTensor(values, kind, values.shape, strides)


def write_legacy(writer: TorchWriter, path: Path, content: object) -> Path:
    """Writes `content`, with arrays as tensors, as `torch.save` did before version 1.6."""
    archive = writer.write(path.with_suffix(".zip"), content)
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        table = next(file.read(name) for name in names if name.endswith("data.pkl"))
        buffers = {name.rsplit("/", 1)[1]: file.read(name) for name in names if "/data/" in name}
    archive.unlink()
    sizes = {key: _size(content, key) for key in buffers}
    parts = [pickle.dumps(part, 2) for part in (MAGIC, 1001, SYSTEM)]
    parts += [table, pickle.dumps(list(buffers), 2)]
    parts += [sizes[key].to_bytes(8, "little") + buffers[key] for key in buffers]
    path.write_bytes(b"".join(parts))
    return path


def _size(content: dict, key: str) -> int:
    return list(content.values())[int(key)].values.size
