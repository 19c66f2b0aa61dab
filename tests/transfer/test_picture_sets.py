"""Labelled pictures from packages, folders and arrays."""

import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from tfdp.transfer.features import DatasetError, open_pictures, open_splits
from tfdp.transfer.features.named_datasets import read_idx

RNG = np.random.default_rng(0)


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def _cifar_folder(path, rows=4):
    """The package's layout, with a few pictures a file."""
    pictures = RNG.integers(0, 256, (6, rows, 32, 32, 3)).astype(np.uint8)
    names = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    for name, batch in zip(names, pictures, strict=True):
        Image.fromarray(batch.reshape(rows, 1024, 3)).save(path / name)
    labels = {"train": list(range(5 * rows)), "test": list(range(rows))}
    for split, values in labels.items():
        (path / f"{split}_lables.json").write_text(json.dumps([v % 10 for v in values]))
    return pictures


def test_packaged_cifar10_from_folder_and_tarball(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    pictures = _cifar_folder(folder)
    with tarfile.open(tmp_path / "cifar.tgz", "w:gz") as archive:
        archive.add(folder, "package")
    for source in (tmp_path, folder, tmp_path / "cifar.tgz"):
        train = open_pictures("cifar10", "train", source)
        assert len(train) == 20 and train.class_names[6] == "frog"
        np.testing.assert_array_equal(train.picture(5), pictures[1, 1])
        assert train.label(13) == 3
    test = open_pictures("cifar10", "test", folder)
    np.testing.assert_array_equal(test.picture(3), pictures[5, 3])


def test_idx_files_plain_and_gzipped(tmp_path):
    pictures = RNG.integers(0, 256, (3, 28, 28)).astype(np.uint8)
    labels = np.array([2, 0, 9], np.uint8)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(_idx(pictures))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(_idx(labels)))
    for name in ("mnist", "fashion_mnist"):
        found = open_pictures(name, "test", tmp_path)
        assert [found.label(i) for i in range(3)] == [2, 0, 9]
        np.testing.assert_array_equal(found.picture(1), np.repeat(pictures[1][..., None], 3, 2))
    assert open_pictures("fashion_mnist", "test", tmp_path).class_names[9] == "Ankle boot"


def test_folders_of_pictures(tmp_path):
    picture = RNG.integers(0, 256, (5, 6, 3)).astype(np.uint8)
    for split, label in (("train", "cat"), ("train", "dog"), ("test", "cat")):
        (tmp_path / split / label).mkdir(parents=True)
        Image.fromarray(picture).save(tmp_path / split / label / "a.png")
    train = open_pictures("folder", "train", tmp_path)
    assert train.class_names == ["cat", "dog"] and [train.label(0), train.label(1)] == [0, 1]
    np.testing.assert_array_equal(train.picture(0), picture)
    with pytest.raises(DatasetError, match="no such folder"):
        open_pictures("folder", "validation", tmp_path)


def test_splits_whose_labels_mean_different_things_are_rejected(tmp_path):
    picture = RNG.integers(0, 256, (5, 6, 3)).astype(np.uint8)
    for place in ("train/cat", "train/dog", "train/eel", "test/cat", "test/eel"):
        (tmp_path / place).mkdir(parents=True)
        Image.fromarray(picture).save(tmp_path / place / "a.png")
    # Label 1 would be the dog in training, and the eel in the test.
    with pytest.raises(DatasetError, match=r"'train' and 'test' have different classes \(dog\)"):
        open_splits("folder", ["train", "test"], tmp_path)
    (tmp_path / "test" / "dog").mkdir()
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    train, test = open_splits("folder", ["train", "test"], tmp_path)
    assert train.class_names == test.class_names == ["cat", "dog", "eel"]
    assert [test.label(0), test.label(1)] == [0, 2]
    with pytest.raises(DatasetError, match="no split is named"):
        open_splits("folder", [], tmp_path)


def test_pictures_of_ones_own_are_never_taken_for_a_data_set_that_everybody_has(tmp_path):
    """Studies of those draw their noise by the name."""
    for name in ("a", "b"):
        (tmp_path / "mnist" / name).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / "mnist" / name / "1.png")
    pictures = np.zeros([2, 4, 4], np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=pictures, y_train=np.array([0, 1]))
    assert open_pictures("folder", "train", tmp_path / "mnist").name == "folder:mnist"
    assert open_pictures("npz", "train", tmp_path / "cifar10.npz").name == "npz:cifar10"


def test_npz_arrays(tmp_path):
    pictures = RNG.integers(0, 256, (2, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=pictures, y_train=np.array([[0], [2]]))
    found = open_pictures("npz", "train", tmp_path / "a.npz")
    assert len(found.class_names) == 3 and found.picture(0).shape == (4, 4, 3)
    with pytest.raises(DatasetError, match="x_test"):
        open_pictures("npz", "test", tmp_path / "a.npz")


@pytest.mark.parametrize("size", [0, 3, 300])
def test_a_npz_file_that_was_cut_off_is_named(tmp_path, size):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=np.zeros((2, 4, 4), np.uint8), y_train=np.array([0, 2]))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DatasetError, match="a.npz: not a readable .npz file"):
        open_pictures("npz", "train", path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0.5, 1.0]), r"labels must be whole numbers from 0, y_train holds others"),
        (np.array([np.nan, 1.0]), "must be whole numbers"),
        (np.array(["cat", "dog"]), "must be whole numbers"),
        (np.array([0, 0]), "has 1 class: a classifier needs two or more"),
    ],
)
def test_labels_that_no_classifier_can_learn_are_rejected(tmp_path, labels, message):
    file = tmp_path / "few.npz"
    np.savez(file, x_train=np.zeros((2, 4, 4), np.uint8), y_train=labels)
    with pytest.raises(DatasetError, match=message):
        open_splits("npz", ["train"], file)


def test_missing_and_damaged_packages_are_named(tmp_path):
    with pytest.raises(DatasetError, match="holds no data_batch_1.png"):
        open_pictures("cifar10", "train", tmp_path)
    with pytest.raises(DatasetError, match="no such file or folder"):
        open_pictures("mnist", "train", tmp_path / "none")
    (tmp_path / "x.tgz").write_bytes(b"not a tarball")
    with pytest.raises(DatasetError, match="not a readable .tgz"):
        open_pictures("mnist", "train", tmp_path / "x.tgz")
    with pytest.raises(DatasetError, match="split must be train or test"):
        open_pictures("mnist", "validation", tmp_path)
    with pytest.raises(DatasetError, match="needs a path"):
        open_pictures("folder", "train")
    with pytest.raises(DatasetError, match="cut short"):
        read_idx(_idx(np.zeros((2, 3), np.uint8))[:-1], "x")
    with pytest.raises(DatasetError, match="not an IDX file"):
        read_idx(b"\x01\x02\x08\x01", "x")
    _cifar_folder(tmp_path)
    (tmp_path / "data_batch_2.png").write_bytes(b"broken")
    with pytest.raises(DatasetError, match="CIFAR-10 is damaged"):
        open_pictures("cifar10", "train", tmp_path)


def test_names_of_tensorflow_datasets_are_passed_on():
    with pytest.raises(DatasetError, match="'no_such_set_at_all'.* not found") as caught:
        open_pictures("tfds:no_such_set_at_all", "train")
    assert len(str(caught.value)) < 300  # without the names of all datasets


def test_transparent_files_come_on_white(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    file = io.BytesIO()
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(file, "PNG")
    (tmp_path / "train" / "a" / "x.png").write_bytes(file.getvalue())
    found = open_pictures("folder", "train", tmp_path).picture(0)
    np.testing.assert_array_equal(found, np.full((2, 2, 3), 255))
