"""Pictures decoded in a graph are the pictures that training sees."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfdp.data.pictures import center_square, open_picture
from tfdp.export.encoded_pictures import decode_each, decode_picture


def encoded(mode, file_format, shape=(37, 52), **options):
    """A picture file of smooth random content."""
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (7, 9, 4), np.uint8)
    picture = Image.fromarray(coarse, "RGBA").resize(shape).convert(mode)
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def in_training(data, size, crop_share=1.0):
    return center_square(open_picture(data), size, crop_share).astype(np.float32)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_png_pixels_are_those_of_training(mode):
    data = encoded(mode, "png", shape=(24, 24))
    np.testing.assert_array_equal(decode_picture(data, 24), in_training(data, 24))


@pytest.mark.parametrize(
    "mode, file_format, options",
    [
        ("RGB", "jpeg", {"quality": 80, "subsampling": 0}),
        ("RGB", "jpeg", {"quality": 60, "subsampling": 2}),
        ("L", "jpeg", {}),
        ("RGB", "webp", {"quality": 70}),
        ("RGBA", "webp", {"lossless": True, "exact": True}),
        ("RGB", "gif", {}),
        ("RGB", "bmp", {}),
        ("L", "bmp", {}),
    ],
)
def test_other_formats_are_decoded_as_in_training(mode, file_format, options):
    data = encoded(mode, file_format, shape=(24, 24), **options)
    np.testing.assert_array_equal(decode_picture(data, 24), in_training(data, 24))


@pytest.mark.parametrize("shape", [(24, 24), (37, 52), (52, 37), (200, 30), (9, 7)])
@pytest.mark.parametrize("crop_share", [1.0, 0.875])
def test_crop_and_resize_differ_by_a_rare_rounding_at_most(shape, crop_share):
    data = encoded("RGB", "png", shape)
    for size in (16, 64):
        difference = decode_picture(data, size, crop_share) - in_training(data, size, crop_share)
        assert np.abs(difference).max() <= 1
        assert np.mean(difference != 0) <= 3e-3


def test_bytes_that_are_no_picture_become_zeros_marked_invalid():
    good, size = encoded("RGB", "png"), 8
    files = [good, b"text", encoded("RGB", "jpeg")[:80], b"", good[:60], good]
    graph = tf.function(lambda batch: decode_each(lambda d: decode_picture(d, size), batch, size))
    pixels, valid = graph(tf.constant(files))
    assert valid.numpy().tolist() == [True, False, False, False, False, True]
    np.testing.assert_array_equal(pixels[0], decode_picture(good, size))
    np.testing.assert_array_equal(pixels[5], pixels[0])
    np.testing.assert_array_equal(pixels[1:5], 0)
    pixels, valid = graph(tf.constant([], tf.string))
    assert pixels.shape == (0, size, size, 3)
    assert valid.shape == (0,)
