"""PyTorch files give their tensors and nothing else; every other file gives one clear error."""

import builtins
import os
import pickle
import zipfile

import numpy as np
import pytest

from tests.captioner.fixture import FIXTURES, WEIGHTS
from tests.files.torch_writer import FakeTensor, TorchWriter
from tfdp.files.torch_file import (
    CheckpointError,
    Placeholder,
    Storage,
    StorageType,
    _rebuild_tensor,
    read_torch_file,
)


@pytest.fixture
def writer(monkeypatch):
    return TorchWriter(monkeypatch)


@pytest.mark.parametrize("name", ["dpcap_nano.pth", "dpcap_nano_namespace.pth"])
def test_every_tensor_bit_for_bit(name):
    content = read_torch_file(FIXTURES / name)
    with np.load(WEIGHTS) as expected:
        assert list(content["model"]) == expected.files
        for key, tensor in content["model"].items():
            np.testing.assert_array_equal(tensor, expected[key])
            assert (tensor.dtype, tensor.flags.writeable) == (expected[key].dtype, True)


def test_the_rest_of_a_training_checkpoint():
    content = read_torch_file(FIXTURES / "dpcap_nano_namespace.pth")
    assert set(content) == {"model", "optimizer", "epoch", "privacy_step", "scaler", "args"}
    assert (content["epoch"], content["scaler"]) == (0, {})
    assert type(content["args"]) is Placeholder
    assert isinstance(content["optimizer"]["state"][0]["exp_avg"], np.ndarray)


@pytest.mark.parametrize(
    ("storage", "code"),
    [
        ("DoubleStorage", "f8"),
        ("FloatStorage", "f4"),
        ("HalfStorage", "f2"),
        ("LongStorage", "i8"),
        ("IntStorage", "i4"),
        ("ShortStorage", "i2"),
        ("CharStorage", "i1"),
        ("ByteStorage", "u1"),
        ("BoolStorage", "?"),
    ],
)
@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_every_element_type_and_byte_order(writer, tmp_path, storage, code, byteorder):
    values = np.array([0, 1, 1, 0, 3, 100], code)
    stored = values.astype(values.dtype.newbyteorder(">" if byteorder == "big" else "<"))
    tensor = FakeTensor(stored, storage, (2, 3), (3, 1))
    read = read_torch_file(writer.write(tmp_path / "x.pth", [tensor], byteorder))[0]
    np.testing.assert_array_equal(read, values.reshape(2, 3))
    assert read.dtype == values.dtype


def test_bfloat16_comes_as_float32(writer, tmp_path):
    values = np.array([1.0, -2.5, 0.15625, np.inf], np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    tensor = FakeTensor(upper, "BFloat16Storage", (4,), (1,))
    read = read_torch_file(writer.write(tmp_path / "x.pth", tensor))
    np.testing.assert_array_equal(read, values)
    assert read.dtype == np.float32


def test_views_of_a_buffer(writer, tmp_path):
    values = np.arange(12, dtype=np.float32)
    tensors = [
        FakeTensor(values, "FloatStorage", (3, 4), (1, 3)),  # transposed
        FakeTensor(values, "FloatStorage", (2, 2), (4, 1), 5),  # a window
        FakeTensor(values, "FloatStorage", (), (), 7),  # one number
        FakeTensor(values, "FloatStorage", (0, 3), (3, 1)),  # nothing
    ]
    read = read_torch_file(writer.write(tmp_path / "x.pth", tensors))
    np.testing.assert_array_equal(read[0], values.reshape(4, 3).T)
    np.testing.assert_array_equal(read[1], [[5, 6], [9, 10]])
    assert (read[2], read[3].shape) == (7, (0, 3))


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((3, 4), (4, 1), 1),
        ((13,), (1,), 0),
        ((2,), (-1,), 1),
        ((2,), (1,), -1),
        ((-2,), (1,), 0),
        ((10**9, 10**9), (0, 0), 0),
        ((1,), (1,), 12),
        ((2, 2), (1,), 0),
    ],
)
def test_a_view_that_leaves_its_buffer_is_rejected(writer, tmp_path, shape, strides, offset):
    tensor = FakeTensor(np.zeros(12, np.float32), "FloatStorage", shape, strides, offset)
    with pytest.raises(CheckpointError, match="x.pth: "):
        read_torch_file(writer.write(tmp_path / "x.pth", tensor))


class Harmful:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("function", "argument", "name"),
    [
        (os.system, "echo", f"{os.name}.system"),
        (builtins.eval, "1", "eval"),
        (builtins.getattr, "x", "getattr"),
        (np.array, [1], "numpy"),
    ],
)
def test_a_file_that_would_run_code_is_rejected_by_name(
    tmp_path, protocol, function, argument, name, monkeypatch
):
    table = pickle.dumps({"model": Harmful(function, argument)}, protocol)
    path = TorchWriter.write_zip(tmp_path / "x.pth", table)
    with pytest.raises(CheckpointError, match=f"x.pth: it asks for .*{name}.*rejected"):
        read_torch_file(path)


def test_truncated_anywhere(tmp_path):
    whole = (FIXTURES / "dpcap_nano.pth").read_bytes()
    for part in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.pth"
        path.write_bytes(whole[:part])
        with pytest.raises(CheckpointError, match="cut.pth: not a complete PyTorch zip file"):
            read_torch_file(path)


def test_a_changed_byte_is_noticed(tmp_path):
    whole = bytearray((FIXTURES / "dpcap_nano.pth").read_bytes())
    with zipfile.ZipFile(FIXTURES / "dpcap_nano.pth") as archive:
        starts = [info.header_offset + 200 for info in archive.infolist() if info.file_size > 2000]
    for start in starts[:3]:
        whole[start] ^= 1
        (tmp_path / "bad.pth").write_bytes(whole)
        with pytest.raises(CheckpointError, match="bad.pth: "):
            read_torch_file(tmp_path / "bad.pth")


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"\x80\x02",
        b"not a pickle",
        pickle.dumps(0)[:-1],
        b"\x80\x02ctorch\nFloatStorage\nq\x00)Rq\x01.",  # calls a type of storage
        b"\x80\x02U\x01xQ.",  # a persistent id that is no tuple
        b"\x80\x02(U\x07storageU\x01xU\x010U\x03cpuK\x01tQ.",  # an unknown type of storage
    ],
)
def test_damaged_table_of_contents(tmp_path, table):
    path = TorchWriter.write_zip(tmp_path / "x.pth", table)
    with pytest.raises(CheckpointError, match="x.pth: "):
        read_torch_file(path)


def test_buffers_that_are_missing_short_or_compressed(writer, tmp_path):
    tensor = FakeTensor(np.zeros(8, np.float32), "FloatStorage", (8,), (1,))
    path = writer.write(tmp_path / "x.pth", tensor)
    with zipfile.ZipFile(path) as archive:
        table = archive.read("x/data.pkl")
    for buffers in ({}, {"0": bytes(31)}, {"0": bytes(33)}):
        with pytest.raises(CheckpointError, match="buffer 0 is missing, compressed or of"):
            read_torch_file(TorchWriter.write_zip(path, table, buffers))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", table)
        archive.writestr("x/data/0", bytes(32), zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="buffer 0 is missing, compressed or of"):
        read_torch_file(path)


def test_other_zip_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.pth", "w") as archive:
        archive.writestr("readme.txt", "no tensors")
    with pytest.raises(CheckpointError, match="without one data.pkl"):
        read_torch_file(tmp_path / "other.pth")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_torch_file(tmp_path / "absent.pth")
    with pytest.raises(IsADirectoryError):
        read_torch_file(tmp_path)


def test_a_number_that_stands_for_a_buffer_is_all_that_is_read():
    stand_in = np.broadcast_to(np.zeros((), np.float32), 64_000_000)
    storage = Storage(StorageType("FloatStorage", "f4"), stand_in)
    found = _rebuild_tensor(storage, 5, (4, 7_000_000), (7_000_000, 1))
    assert found.shape == (4, 7_000_000) and not found.any()
