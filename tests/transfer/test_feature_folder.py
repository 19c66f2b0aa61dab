"""Feature folders: resumable, checked, and read without being held in memory."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tfdp.transfer.backbones import Backbone
from tfdp.transfer.features import (
    ArrayPictures,
    FeatureFileError,
    FeatureFolder,
    FeatureWriter,
    NpyPart,
    convert_tfrecords,
    extract,
    feature_header,
    read_tfrecords,
)

PICTURES = np.random.default_rng(0).integers(0, 256, (23, 4, 4, 3)).astype(np.uint8)
LABELS = np.arange(23) % 3


def _network(pictures):
    return tf.reshape(pictures, [-1, 48])[:, :5]


BACKBONE = Backbone("toy", _network, lambda x: x / 255.0, 4, {"weights": "none"})
HEADER = feature_header(BACKBONE, "toys", ["a", "b", "c"], "float32")
EXPECTED = (PICTURES.reshape(23, 48)[:, :5] / 255.0).astype(np.float32)


class _Stop(Exception):
    pass


class _Failing(ArrayPictures):
    """Pictures that are interrupted, or of which one cannot be read."""

    stop_at = -1
    bad = ()

    def label(self, index):
        if index == self.stop_at:
            raise _Stop
        return super().label(index)

    def picture(self, index):
        if index in self.bad:
            raise OSError("damaged")
        return super().picture(index)


def _pictures(stop_at=-1, bad=()):
    found = _Failing("toys", "train", ["a", "b", "c"], PICTURES, LABELS)
    found.stop_at, found.bad = stop_at, bad
    return found


def _extract(path, pictures, **kwargs):
    options = {"batch_size": 4, "shard_rows": 6, **kwargs}
    return extract(BACKBONE, pictures, FeatureWriter(path, HEADER), **options)


def _all(path, split="train"):
    rows = FeatureFolder(path, verify=True).table(split)
    return np.concatenate([block.features for block in rows.blocks()]), rows


def test_features_come_back_in_order_from_shards_of_equal_size(tmp_path):
    assert _extract(tmp_path, _pictures()) == (23, 0)
    features, rows = _all(tmp_path)
    np.testing.assert_allclose(features, EXPECTED, rtol=1e-6)
    np.testing.assert_array_equal(rows.labels, LABELS)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [s["rows"] for s in manifest["splits"]["train"]["shards"]] == [6, 6, 6, 5]
    assert manifest["backbone"] == {"name": "toy", "weights": "none"}
    assert FeatureFolder(tmp_path).num_classes == 3


def test_an_interrupted_extraction_continues_and_a_finished_one_does_nothing(tmp_path):
    with pytest.raises(_Stop):
        _extract(tmp_path, _pictures(stop_at=15))
    with pytest.raises(FeatureFileError, match="unfinished, 12 of 23 rows"):
        FeatureFolder(tmp_path).table("train")
    first = (tmp_path / "train" / "features-00000.npy").stat().st_mtime_ns
    _extract(tmp_path, _pictures())
    np.testing.assert_allclose(_all(tmp_path)[0], EXPECTED, rtol=1e-6)
    _extract(tmp_path, _pictures(stop_at=0))  # not one picture is looked at again
    assert (tmp_path / "train" / "features-00000.npy").stat().st_mtime_ns == first


def test_a_second_writer_is_kept_out_and_goes_on_with_what_the_first_wrote(tmp_path):
    first, second = (FeatureWriter(tmp_path, HEADER) for _ in range(2))
    options = {"batch_size": 4, "shard_rows": 6}
    with first.locked():
        with (
            pytest.raises(FeatureFileError, match="is being written by this process"),
            second.locked(),
        ):
            pass
        extract(BACKBONE, _pictures(), first, **options)
    test = _Failing("toys", "test", ["a", "b", "c"], PICTURES, LABELS)
    test.stop_at, test.bad = -1, ()
    with second.locked():
        extract(BACKBONE, test, second, **options)
    assert FeatureFolder(tmp_path, verify=True).splits == ["train", "test"]


def test_a_lost_shard_is_made_again(tmp_path):
    _extract(tmp_path, _pictures())
    (tmp_path / "train" / "features-00001.npy").unlink()
    _extract(tmp_path, _pictures())
    np.testing.assert_allclose(_all(tmp_path)[0], EXPECTED, rtol=1e-6)


def test_an_unreadable_picture_is_counted_and_skipped_later(tmp_path):
    assert _extract(tmp_path, _pictures(bad=[9])) == (23, 1)
    _, rows = _all(tmp_path)
    assert rows.bad_examples == 1 and rows.labels[9] == -1


def test_unreadable_pictures_alone_in_their_batch_do_not_stop_the_others(tmp_path):
    assert _extract(tmp_path, _pictures(bad=[4, 5, 6, 7, 20, 21, 22])) == (23, 7)
    features, rows = _all(tmp_path)
    assert np.flatnonzero(rows.labels == -1).tolist() == [4, 5, 6, 7, 20, 21, 22]
    np.testing.assert_allclose(features[8:20], EXPECTED[8:20], rtol=1e-6)


def test_a_split_without_a_readable_picture_is_rejected_and_can_be_mended(tmp_path):
    for _ in range(2):
        with pytest.raises(FeatureFileError, match="none of the 23 pictures of split 'train'"):
            _extract(tmp_path, _pictures(bad=range(23)))
    assert _extract(tmp_path, _pictures()) == (23, 0)


def test_pictures_of_different_sizes_share_a_batch(tmp_path):
    class Mixed(_Failing):
        def picture(self, index):
            picture = super().picture(index)
            return np.pad(picture, ((0, 0), (0, 2), (0, 0)), "edge") if index % 2 else picture

    pictures = Mixed("toys", "train", ["a", "b", "c"], PICTURES, LABELS)
    assert _extract(tmp_path, pictures) == (23, 0)


def test_other_features_in_the_folder_are_rejected(tmp_path):
    _extract(tmp_path, _pictures())
    other = {**HEADER, "dtype": "float16"}
    with pytest.raises(FeatureFileError, match="another kind; dtype differ"):
        FeatureWriter(tmp_path, other)
    with pytest.raises(FeatureFileError, match="was begun with 23 rows in shards of 6"):
        _extract(tmp_path, _pictures(), shard_rows=7)


def test_limit_and_float16(tmp_path):
    header = {**HEADER, "dtype": "float16"}
    extract(BACKBONE, _pictures(), FeatureWriter(tmp_path, header), limit=9)
    features, _ = _all(tmp_path)
    assert features.dtype == np.float16 and len(features) == 9


def test_features_beyond_float16_are_not_taken_for_unreadable_pictures(tmp_path):
    large = dataclasses.replace(BACKBONE, preprocess=lambda x: 1e3 * tf.cast(x, tf.float32))
    header = {**HEADER, "dtype": "float16"}
    with pytest.raises(FeatureFileError, match=r"does not fit in float16, .*--dtype=float32"):
        extract(large, _pictures(), FeatureWriter(tmp_path / "16", header))
    writer = FeatureWriter(tmp_path / "32", HEADER)
    assert extract(large, _pictures(), writer) == (23, 0)


def _cut(file):
    np.save(file, np.load(file)[:-1])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda p: (p / "train/features-00001.npy").unlink(), "this shard is missing"),
        (lambda p: (p / "train/labels-00001.npy").unlink(), "labels are missing"),
        (lambda p: (p / "manifest.json").unlink(), "not a feature folder"),
        (lambda p: (p / "manifest.json").write_text("{"), "is damaged"),
        (lambda p: (p / "manifest.json").write_text("{}"), "not a manifest of format 1"),
        (lambda p: (p / "manifest.json").write_text('{"format": 1, "splits": {}}'), "class_names"),
        (lambda p: _cut(p / "train/features-00001.npy"), "has 5 rows and 6 labels, but .* says 6"),
        (lambda p: _cut(p / "train/labels-00001.npy"), "has 6 rows and 5 labels, but .* says 6"),
        (lambda p: (p / "train/features-00002.npy").write_bytes(b"x"), "not a .npy file"),
        (lambda p: (p / "train/features-00002.npy").write_bytes(b""), "not a .npy file"),
        (lambda p: (p / "train/labels-00002.npy").write_bytes(b""), "not a .npy file"),
    ],
)
def test_broken_folders_are_named(tmp_path, break_it, message):
    _extract(tmp_path, _pictures())
    break_it(tmp_path)
    with pytest.raises(FeatureFileError, match=message):
        FeatureFolder(tmp_path).table("train")


def test_a_changed_or_cut_shard_is_noticed(tmp_path):
    _extract(tmp_path, _pictures())
    file = tmp_path / "train" / "features-00000.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    FeatureFolder(tmp_path).table("train")
    with pytest.raises(FeatureFileError, match="does not have the checksum"):
        FeatureFolder(tmp_path, verify=True)
    file.write_bytes(content[:-4])
    with pytest.raises(FeatureFileError, match="bytes where"):
        FeatureFolder(tmp_path).table("train")


def test_shards_of_different_widths_are_named(tmp_path):
    _extract(tmp_path, _pictures())
    np.save(tmp_path / "train" / "features-00001.npy", np.zeros((6, 4), np.float32))
    with pytest.raises(ValueError, match="part 0 has 5 columns, part 1 has 4"):
        FeatureFolder(tmp_path).table("train")


def test_shards_without_rows_are_skipped(tmp_path):
    writer = FeatureWriter(tmp_path, HEADER)
    writer.begin("train", 3, 3)
    for count in (0, 3, 0):
        writer.append("train", EXPECTED[:count].astype(np.float32), LABELS[:count])
    features, rows = _all(tmp_path)
    np.testing.assert_allclose(features, EXPECTED[:3], rtol=1e-6)
    assert len(rows) == 3 and rows.bad_examples == 0


def test_an_unknown_split_is_named(tmp_path):
    _extract(tmp_path, _pictures())
    with pytest.raises(FeatureFileError, match="no split 'test', only"):
        FeatureFolder(tmp_path).table("test")


def test_npy_parts_read_slices_and_reject_other_arrays(tmp_path):
    table = np.arange(12, dtype=np.float16).reshape(4, 3)
    np.save(tmp_path / "a.npy", table)
    part = NpyPart(tmp_path / "a.npy")
    for rows in (slice(0, 2), slice(1, 9), slice(3, 1), slice(None)):
        np.testing.assert_array_equal(part[rows], table[rows])
    np.save(tmp_path / "b.npy", np.asfortranarray(table))
    with pytest.raises(FeatureFileError, match="C order"):
        NpyPart(tmp_path / "b.npy")


def _write_tfrecord(path, features, labels, last=None):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row, label in zip(features, labels, strict=True):
            feature = {
                "repr": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
        if last is not None:
            writer.write(last)


def test_tfrecords_of_repr_and_label_become_shards(tmp_path):
    for shard in range(2):
        part = slice(12 * shard, 12 * (shard + 1))
        _write_tfrecord(tmp_path / f"train-{shard}.tfrecord", EXPECTED[part], LABELS[part])
    pattern = str(tmp_path / "train-*")
    writer = FeatureWriter(tmp_path / "out", HEADER)
    assert convert_tfrecords(pattern, "train", writer, shard_rows=5) == (23, 0)
    features, rows = _all(tmp_path / "out")
    np.testing.assert_array_equal(features, EXPECTED)
    np.testing.assert_array_equal(rows.labels, LABELS)
    (tmp_path / "out" / "train" / "features-00003.npy").unlink()
    writer = FeatureWriter(tmp_path / "out", HEADER)
    convert_tfrecords(pattern, "train", writer, shard_rows=5)
    np.testing.assert_array_equal(_all(tmp_path / "out")[0], EXPECTED)


def test_labels_without_a_class_name_are_rejected_before_anything_is_written(tmp_path):
    _write_tfrecord(tmp_path / "a", EXPECTED, LABELS + 1)
    with pytest.raises(FeatureFileError, match=r"labels must lie in 0..2, .* 3 class names; found"):
        convert_tfrecords(str(tmp_path / "a"), "train", FeatureWriter(tmp_path / "out", HEADER))
    assert not (tmp_path / "out").exists()


def test_broken_tfrecords_are_named(tmp_path):
    with pytest.raises(FeatureFileError, match="no file matches"):
        list(read_tfrecords(str(tmp_path / "*")))
    _write_tfrecord(tmp_path / "a", [[1.0, 2.0], [1.0]], [0, 1])
    with pytest.raises(FeatureFileError, match="'repr' with 2 floats"):
        list(read_tfrecords(str(tmp_path / "a")))
    (tmp_path / "a").write_bytes(b"no record at all, just text that is long enough")
    with pytest.raises(FeatureFileError, match="not a TFRecord file"):
        list(read_tfrecords(str(tmp_path / "a")))
    junk = b"no example \xff\xff"
    for before, message in (([], "not a TFRecord file of"), ([[1.0, 2.0]], "a record is damaged")):
        _write_tfrecord(tmp_path / "a", before, [0] * len(before), junk)
        with pytest.raises(FeatureFileError, match=f"/a: {message}") as error:
            list(read_tfrecords(str(tmp_path / "a")))
        assert "node" not in str(error.value)
    _write_tfrecord(tmp_path / "a", [[]], [0])
    with pytest.raises(FeatureFileError, match="no floats named 'repr'"):
        list(read_tfrecords(str(tmp_path / "a")))
