"""Pictures with captions as records."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfdp.captioner import CaptionTokenizer, ImageTextSource
from tfdp.data import RandomResizedCrop, batches

_PIECES = ["[PAD]", "[UNK]", "[START]", "[END]", "red", "green", "blue", "square"]


def _png(color, size=8):
    file = io.BytesIO()
    Image.new("RGB", (size, size), color).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def tokenizer():
    return CaptionTokenizer(_PIECES)


@pytest.fixture
def records(tmp_path):
    (tmp_path / "blue.png").write_bytes(_png("blue"))
    return [
        (_png("red"), "Red square"),
        (tmp_path / "blue.png", "blue square"),
        (np.full((8, 8, 3), 255, np.uint8), "green"),
        (_png("red")[:40], "red"),  # cut short
        (_png("red"), "  "),  # no caption
        (tmp_path / "gone.png", "green"),  # no file
        (_png("green"), "red green blue square red green"),  # too long
        None,  # no record
        (b"", "red"),  # no bytes
    ]


def _fetch(source, indices, step=0):
    return source.fetch(tf.constant(indices, tf.int64), tf.constant(step, tf.int64))


def test_pairs_are_ready_for_teacher_forcing(records, tokenizer):
    x, y, weight, valid = _fetch(ImageTextSource(records, tokenizer, 8, 6), [0, 1, 2])
    assert x["image"].dtype == tf.float32 and x["image"].shape == (3, 8, 8, 3)
    np.testing.assert_allclose(x["image"][0, 0, 0], [1, -1, -1])
    np.testing.assert_allclose(x["image"][1, 0, 0], [-1, -1, 1])
    np.testing.assert_array_equal(x["tokens"][:2], [[2, 4, 7, 3, 0], [2, 6, 7, 3, 0]])
    np.testing.assert_array_equal(y[:2], [[4, 7, 3, 0, 0], [6, 7, 3, 0, 0]])
    assert weight is None and valid.numpy().all()


def test_bad_records_are_zero_invalid_and_counted_once(records, tokenizer):
    source = ImageTextSource(records, tokenizer, 8, 6)
    for _ in range(2):
        x, y, _, valid = _fetch(source, [0, 3, 4, 5, 7, 8])
    assert valid.numpy().tolist() == [True] + [False] * 5
    for rows in (x["image"], x["tokens"], y):
        assert not rows.numpy()[1:].any()
    assert source.bad_records == {
        "corrupt_picture": 2,
        "empty_caption": 1,
        "missing_file": 1,
        "unreadable_record": 1,
    }


def test_captions_without_a_single_piece_are_empty(tokenizer):
    source = ImageTextSource([(_png("red"), "\u200b\u0007")], tokenizer, 8, 6)
    assert not _fetch(source, [0])[3].numpy()[0]
    assert source.bad_records == {"empty_caption": 1}


def test_long_captions_are_cut_counted_once_and_valid(records, tokenizer):
    source = ImageTextSource(records, tokenizer, 8, 6)
    for _ in range(2):
        _, y, _, valid = _fetch(source, [6, 0, 6])
    assert valid.numpy().all() and source.truncated_captions == 1
    np.testing.assert_array_equal(y[0], [4, 5, 6, 7, 3])
    assert source.bad_records == {}


def test_fetch_is_a_pure_function_and_steps_augment_anew(tokenizer):
    noise = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8)
    for cache in (False, True):
        source = ImageTextSource(
            [(noise, "red")] * 2, tokenizer, 8, 6, augment=RandomResizedCrop(), cache=cache
        )
        first = _fetch(source, [0, 1], 5)[0]["image"].numpy()
        assert not np.array_equal(first[0], first[1])
        assert not np.array_equal(first, _fetch(source, [0, 1], 6)[0]["image"])
        np.testing.assert_array_equal(first[::-1], _fetch(source, [1, 0], 5)[0]["image"])
        np.testing.assert_array_equal(source.pictures([0]), source.pictures([1]))


def test_the_cache_changes_nothing(records, tokenizer):
    plain = ImageTextSource(records, tokenizer, 6, 6, crop_share=0.8)
    cached = ImageTextSource(records, tokenizer, 6, 6, crop_share=0.8, cache=True)
    for _ in range(2):
        for one, other in zip(
            tf.nest.flatten(_fetch(plain, range(9))[:2]),
            tf.nest.flatten(_fetch(cached, range(9))[:2]),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


def test_shapes_are_static_inside_a_pipeline(records, tokenizer):
    source = ImageTextSource(records, tokenizer, 8, 6)
    data = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(6, dtype=tf.int64), (2, 3)))
    data = data.map(
        lambda i: source.fetch(i, tf.constant(0, tf.int64)), num_parallel_calls=tf.data.AUTOTUNE
    )
    x, y, _, valid = data.element_spec
    assert x["image"] == tf.TensorSpec((3, 8, 8, 3), tf.float32)
    assert x["tokens"] == y == tf.TensorSpec((3, 5), tf.int32)
    assert valid == tf.TensorSpec((3,), tf.bool)
    assert sum(int(tf.reduce_sum(tf.cast(v, tf.int32))) for *_, v in data) == 3


def test_imagenet_normalization(tokenizer):
    source = ImageTextSource(
        [(np.zeros((4, 4, 3), np.uint8), "red")], tokenizer, 4, 4, normalization="imagenet"
    )
    expected = -np.array([0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(source.images()[0, 0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(_fetch(source, [0])[0]["image"][0, 0, 0], expected, rtol=1e-6)


def test_captions_and_labels_for_evaluation(records, tokenizer):
    source = ImageTextSource(records, tokenizer, 8, 6)
    assert source.captions([1, 7]) == ["blue square", ""]
    assert source.labels([0, 7]).tolist() == [-1, -1]
    assert source.pictures([2, 7]).max(axis=(1, 2, 3)).tolist() == [255, 0]


def test_batches_hold_readable_records_only(records, tokenizer):
    source = ImageTextSource(records, tokenizer, 8, 6)
    sizes = [len(y) for _, y in batches(source, 4)]
    assert sizes == [3, 1, 0]


def test_impossible_arguments_are_rejected(records, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="normalization must be one of"):
        ImageTextSource(records, tokenizer, 8, 6, normalization="mine")
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 3"):
        ImageTextSource(records, tokenizer, 8, 2)
    with pytest.raises(TypeError, match="image_size must be a whole number.*got 32.5"):
        ImageTextSource(records, tokenizer, 32.5, 6)
    with pytest.raises(ValueError, match=r"crop_share must be in \(0, 1\], got 1.5"):
        ImageTextSource(records, tokenizer, 8, 6, crop_share=1.5)
    with pytest.raises(ValueError, match="pairs is empty"):
        ImageTextSource([], tokenizer, 8, 6)
    with pytest.raises(TypeError, match="a folder or a sequence"):
        ImageTextSource(iter(records), tokenizer, 8, 6)
    with pytest.raises(FileNotFoundError, match="does not hold prepared pairs"):
        ImageTextSource(tmp_path, tokenizer, 8, 6)
    for text, message in (
        ('{"splits": ', "damaged"),
        ('{"format": 1}', "not a manifest of prepared"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=f"manifest.json is {message}"):
            ImageTextSource(tmp_path, tokenizer, 8, 6)


def test_captions_that_were_cut_are_counted_on_too(tmp_path):
    tokenizer = CaptionTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "red"])
    picture = tf.zeros([8, 8, 3], tf.uint8).numpy()
    pairs = [(picture, "red red red red red"), (picture, "red"), (picture, ""), (None, "red")]
    for indices in ([0, 1], [0, 2, 3]):
        records = ImageTextSource(pairs, tokenizer, 8, 4)
        with records.counts_kept_in(tmp_path / "file"):
            records.fetch(tf.constant(indices, tf.int64), tf.constant(0, tf.int64))
    assert records.truncated_captions == 1
    assert records.bad_records == {"corrupt_picture": 1, "empty_caption": 1}
    again = ImageTextSource(pairs, tokenizer, 8, 4)
    with again.counts_kept_in(tmp_path / "file"):
        assert again.truncated_captions == 1 and again.bad_records == records.bad_records
