"""Decoding, cutting and augmenting pictures."""

import io

import numpy as np
import pytest
from PIL import Image

from tfdp.data import RandomResizedCrop
from tfdp.data.pictures import center_square, open_picture


def _encoded(picture, kind, **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP"])
def test_lossless_formats_come_back_exactly(kind):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    options = {"lossless": True} if kind == "WEBP" else {}
    np.testing.assert_array_equal(
        open_picture(_encoded(Image.fromarray(pixels), kind, **options)), pixels
    )


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(mode):
    picture = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    options = {"transparency": 0} if mode == "P" else {}
    assert (open_picture(_encoded(picture, "PNG", **options)) == 255).all()


def test_grey_pictures_get_three_channels():
    assert open_picture(_encoded(Image.new("L", (3, 2), 7), "PNG")).tolist() == [[[7] * 3] * 3] * 2


def test_pixels_must_be_bytes():
    with pytest.raises(ValueError, match=r"pixels must be uint8 \[H, W, 3\], got float64"):
        open_picture(np.zeros((2, 2, 3)))


def test_the_middle_square():
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (center_square(wide, 10) == 200).all()
    square = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    assert center_square(square, 10) is square
    assert center_square(wide, 4, share=0.5).shape == (4, 4, 3)


def test_augmentation_is_a_pure_function_of_example_and_step():
    picture = np.random.default_rng(1).integers(0, 256, (20, 20, 3), np.uint8)
    crop = RandomResizedCrop(flip=True)
    one = crop(picture, 8, example=3, step=7)
    np.testing.assert_array_equal(one, RandomResizedCrop(flip=True)(picture, 8, 3, 7))
    for example, step in ((3, 8), (4, 7), (7, 3)):
        assert not np.array_equal(one, crop(picture, 8, example, step))
    assert not np.array_equal(one, RandomResizedCrop(flip=True, seed=1)(picture, 8, 3, 7))


def test_augmentation_cuts_within_its_bounds_and_flips_half():
    """2,000 draws; the share of flips is within 5 SD (false alarms < 1e-6)."""
    ramp = np.repeat(np.arange(0, 200, 2, dtype=np.uint8)[None, :, None], 100, 0).repeat(3, 2)
    crop = RandomResizedCrop(scale=(0.25, 0.25), ratio=(1.0, 1.0), flip=True)
    flipped = 0
    for step in range(2000):
        row = crop(ramp, 4, 0, step)[0, :, 0].astype(int)
        flipped += row[0] > row[-1]
        # Half of the width is 100 grey levels; pixel centres span three quarters of that.
        assert abs(abs(row[-1] - row[0]) - 75) <= 6
    assert abs(flipped - 1000) < 5 * np.sqrt(500)


def test_impossible_bounds_are_rejected():
    for scale in ((0.0, 1.0), 0.5, (0.5,)):
        with pytest.raises(ValueError, match="scale must be two increasing numbers"):
            RandomResizedCrop(scale=scale)
    with pytest.raises(ValueError, match="ratio must be two increasing positive"):
        RandomResizedCrop(ratio=(2.0, 1.0))
