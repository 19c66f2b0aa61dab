"""The figures are written, are the same for the same numbers, and refuse what they cannot show."""

import numpy as np
import pytest
from PIL import Image

from tfdp.evaluation import plot_training_curve, save_caption_sheet

STEPS = [1, 2, 3]
RED, BLUE, GREY = (179, 38, 30), (31, 95, 168), (102, 102, 102)


def pixels_of(path, colour):
    """How many pixels have exactly this colour."""
    return int(np.all(np.asarray(Image.open(path).convert("RGB")) == colour, axis=-1).sum())


def test_curve_draws_loss_epsilon_and_references(tmp_path):
    path = plot_training_curve(
        tmp_path / "figures" / "training_curve.png",
        STEPS,
        [3.0, 2.0, 1.5],
        [1.0, 1.5, 1.8],
        delta=1e-5,
        held_out=([3], [1.7]),
        references={"unigram": 2.5},
    )
    assert path == tmp_path / "figures" / "training_curve.png"
    assert pixels_of(path, BLUE) > 500
    assert pixels_of(path, RED) > 500
    plain = plot_training_curve(tmp_path / "plain.png", STEPS, [3.0, 2.0, 1.5], [1.0, 1.5, 1.8])
    assert pixels_of(path, GREY) > pixels_of(plain, GREY) + 100


def test_curve_without_finite_epsilon_has_no_red_line(tmp_path):
    path = plot_training_curve(tmp_path / "curve.png", STEPS, [3.0, 2.0, 1.5], [float("inf")] * 3)
    assert pixels_of(path, BLUE) > 500
    assert pixels_of(path, RED) < 300  # the axis label alone


def test_same_numbers_give_the_same_bytes(tmp_path):
    pictures = np.random.default_rng(0).random((32, 8, 8, 3))
    captions = [f"picture {number}" for number in range(32)]
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    for path in (first, second):
        save_caption_sheet(path, pictures, captions, captions)
    assert first.read_bytes() == second.read_bytes()
    for path in (first, second):
        plot_training_curve(path, STEPS, STEPS, STEPS)
    assert first.read_bytes() == second.read_bytes()


def test_sheet_shows_every_picture_with_both_captions(tmp_path):
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
    pictures = np.broadcast_to(colours[:, None, None], (3, 8, 8, 3))
    path = tmp_path / "sheet.png"
    true = ["costs $5 and $6", "word " * 40, "a"]
    generated = ["a red square", "", "x" * 100]
    whole = save_caption_sheet(path, pictures, true, generated).read_bytes()
    for colour in colours:
        assert pixels_of(path, colour) > 10_000
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


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(ValueError, match="undo the normalisation"):
        save_caption_sheet(tmp_path / "a.png", np.full((1, 4, 4, 3), -1.0), ["a"], ["b"])
    with pytest.raises(ValueError, match=r"got \(2, 1, 2\)"):
        save_caption_sheet(tmp_path / "a.png", np.zeros((2, 4, 4, 3)), ["a"], ["b", "c"])
    with pytest.raises(ValueError, match=r"got \(2, 2, 2, 1\)"):
        save_caption_sheet(tmp_path / "a.png", np.zeros((2, 4, 4, 3)), ["a"] * 2, ["b"] * 2, [1.0])
    with pytest.raises(ValueError, match="got 3, 2 and 3"):
        plot_training_curve(tmp_path / "a.png", STEPS, STEPS[:2], STEPS)
    with pytest.raises(ValueError, match="at least 1"):
        plot_training_curve(tmp_path / "a.png", [], [], [])
    assert not list(tmp_path.iterdir())
