"""The sheet is written, is the same for the same captions, and rejects what it cannot show."""

import numpy as np
import pytest
from PIL import Image

from tfdp.captioner import save_caption_sheet


def pixels_of(path, color):
    """How many pixels have exactly this color."""
    return int(np.all(np.asarray(Image.open(path).convert("RGB")) == color, axis=-1).sum())


def test_same_pictures_give_the_same_bytes(tmp_path):
    pictures = np.random.default_rng(0).random((32, 8, 8, 3))
    captions = [f"picture {number}" for number in range(32)]
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    for path in (first, second):
        save_caption_sheet(path, pictures, captions, captions)
    assert first.read_bytes() == second.read_bytes()


def test_sheet_shows_every_picture_with_both_captions(tmp_path):
    colors = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
    pictures = np.broadcast_to(colors[:, None, None], (3, 8, 8, 3))
    path = tmp_path / "sheet.png"
    true = ["costs $5 and $6", "word " * 40, "a"]
    generated = ["a red square", "", "x" * 100]
    whole = save_caption_sheet(path, pictures, true, generated).read_bytes()
    for color in colors:
        assert pixels_of(path, color) > 10_000
    for index in range(3):
        for captions in (true, generated):
            kept, captions[index] = captions[index], "other"
            assert save_caption_sheet(path, pictures, true, generated).read_bytes() != whole
            captions[index] = kept


def test_sheet_says_of_every_picture_how_much_likelier_it_makes_its_caption(tmp_path):
    pictures, words, path = np.zeros((2, 8, 8, 3)), ["a", "b"], tmp_path / "sheet.png"
    drawn = {
        times: save_caption_sheet(path, pictures, words, words, times).read_bytes()
        for times in (None, (1.0, 2.0), (1.0, 3.0))
    }
    assert len(set(drawn.values())) == 3


def test_what_cannot_be_shown_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="undo the normalization"):
        save_caption_sheet(tmp_path / "a.png", np.full((1, 4, 4, 3), -1.0), ["a"], ["b"])
    with pytest.raises(ValueError, match=r"got \(2, 1, 2\)"):
        save_caption_sheet(tmp_path / "a.png", np.zeros((2, 4, 4, 3)), ["a"], ["b", "c"])
    with pytest.raises(ValueError, match=r"got \(2, 2, 2, 1\)"):
        save_caption_sheet(tmp_path / "a.png", np.zeros((2, 4, 4, 3)), ["a"] * 2, ["b"] * 2, [1.0])
    assert not list(tmp_path.iterdir())
