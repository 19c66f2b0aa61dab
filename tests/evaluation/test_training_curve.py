"""The curve is written, is the same for the same numbers, and rejects what it cannot show."""

import numpy as np
import pytest
from PIL import Image

from tfdp.evaluation import plot_training_curve

STEPS = [1, 2, 3]
RED, BLUE, GRAY = (179, 38, 30), (31, 95, 168), (102, 102, 102)


def pixels_of(path, color):
    """How many pixels have exactly this color."""
    return int(np.all(np.asarray(Image.open(path).convert("RGB")) == color, axis=-1).sum())


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
    assert pixels_of(path, GRAY) > pixels_of(plain, GRAY) + 100


def test_curve_without_finite_epsilon_has_no_red_line(tmp_path):
    path = plot_training_curve(tmp_path / "curve.png", STEPS, [3.0, 2.0, 1.5], [float("inf")] * 3)
    assert pixels_of(path, BLUE) > 500
    assert pixels_of(path, RED) < 300  # the axis label alone


def test_the_left_axis_says_what_the_loss_is(tmp_path):
    named, plain = tmp_path / "named.png", tmp_path / "plain.png"
    plot_training_curve(named, STEPS, STEPS, STEPS, loss_label="loss (nats per token)")
    plot_training_curve(plain, STEPS, STEPS, STEPS)
    assert named.read_bytes() != plain.read_bytes()


def test_same_numbers_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    for path in (first, second):
        plot_training_curve(path, STEPS, STEPS, STEPS)
    assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_shown_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="got 3, 2 and 3"):
        plot_training_curve(tmp_path / "a.png", STEPS, STEPS[:2], STEPS)
    with pytest.raises(ValueError, match="at least 1"):
        plot_training_curve(tmp_path / "a.png", [], [], [])
    assert not list(tmp_path.iterdir())
