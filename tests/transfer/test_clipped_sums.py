"""Bounded sums in closed form equal a loop over single examples."""

import numpy as np
import pytest
import tensorflow as tf

from tests.transfer.tables import clusters
from tfdp.transfer import passes
from tfdp.transfer.clipped_sums import ClippedSums, View
from tfdp.transfer.feature_table import as_table
from tfdp.transfer.linear_head import normalized
from tfdp.transfer.passes import Passes

ROWS, DIM, CLASSES = 40, 6, 3
RNG = np.random.default_rng(5)
VIEWS = {
    "plain": View(),
    "bias": View(bias=0.7),
    "centerd": View(center=RNG.standard_normal(DIM) * 0.2),
    "all": View(
        center=RNG.standard_normal(DIM) * 0.2,
        projection=RNG.standard_normal((DIM, 4)),
        bias=1.3,
    ),
}


def _seen(x: np.ndarray, view: View) -> np.ndarray:
    rows = normalized(x, "root").astype(np.float64)
    rows = rows if view.center is None else rows - view.center
    return rows if view.projection is None else rows @ view.projection


def _loop(x, y, view, kernel, bias, loss, clip, constant, weights):
    """The clipped sum, one example after the other, by automatic differentiation."""
    total = [np.zeros(kernel.shape), np.zeros(bias.shape)]
    for row, label in zip(_seen(x, view), y, strict=True):
        w, b = tf.Variable(kernel), tf.Variable(bias)
        with tf.GradientTape() as tape:
            logits = tf.linalg.matvec(w, row, transpose_a=True) + view.bias * b + constant
            target = tf.one_hot(label, CLASSES, dtype=tf.float64)
            if loss == "softmax":
                value = tf.nn.softmax_cross_entropy_with_logits(target, logits)
            else:
                value = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(target, logits))
            value *= weights[label]
        gradients = [g.numpy() if g is not None else 0 for g in tape.gradient(value, [w, b])]
        if not view.bias:
            gradients[1] = np.zeros(bias.shape)
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
        for i, g in enumerate(gradients):
            total[i] += g * min(1.0, clip / norm)
    return total


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
@pytest.mark.parametrize("clip", [0.3, 100.0])
@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_closed_form_gradient_equals_a_loop_over_examples(name, loss, clip, scale):
    """At a scale of zero, the first step's, no product with the classes is formed."""
    x, y = clusters(ROWS, DIM, CLASSES)
    view = VIEWS[name]
    kernel = RNG.standard_normal((view.width(DIM), CLASSES)) * scale
    bias = RNG.standard_normal(CLASSES)
    weights = np.array([1.0, 0.5, 0.25])
    expected = _loop(x, y, view, kernel, bias, loss, clip, -0.4, weights)
    sums = ClippedSums(Passes(as_table(x, y, CLASSES), "root"), view, weights)
    found = sums.gradient(kernel, bias, loss=loss, clip_norm=clip, constant=-0.4)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", VIEWS)
def test_moments_and_class_sums_clip_every_example(name):
    x, y = clusters(ROWS, DIM, CLASSES)
    view, clip = VIEWS[name], 0.8
    rows = _seen(x, view)
    rows *= np.minimum(1, clip / np.linalg.norm(rows, axis=1))[:, None]
    own = [rows[y == label] for label in range(CLASSES)]
    sums = ClippedSums(Passes(as_table(x, y, CLASSES), "root"), view)
    close = {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(sums.second_moment(clip), rows.T @ rows, **close)
    np.testing.assert_allclose(sums.class_sums(clip).T, [r.sum(axis=0) for r in own], **close)
    np.testing.assert_allclose(sums.row_sum(clip), rows.sum(axis=0), **close)
    moments = list(sums.class_second_moments(clip))
    np.testing.assert_allclose(moments, [r.T @ r for r in own], **close)
    np.testing.assert_array_equal(sums.class_counts(), [len(r) for r in own])


def test_many_classes_are_summed_without_a_product():
    x, y = clusters(5000, 8, 100)
    sums = ClippedSums(Passes(as_table(x, y, 100), "none"), View())
    rows = x.astype(np.float64)
    rows *= np.minimum(1, 0.8 / np.linalg.norm(rows, axis=1))[:, None]
    expected = np.stack([rows[y == label].sum(axis=0) for label in range(100)], axis=1)
    np.testing.assert_allclose(sums.class_sums(0.8), expected, rtol=2e-5, atol=2e-5)


def test_every_example_enters_a_pass_exactly_once():
    """The published code counts some examples twice; here the counts say so."""
    x, y = clusters(5000, 4, CLASSES)  # three blocks, the last one short
    sums = ClippedSums(Passes(as_table(x, y, CLASSES), "none"), View())
    ones = ClippedSums(Passes(as_table(np.ones_like(x), y, CLASSES), "none"), View())
    np.testing.assert_allclose(ones.class_sums(10.0)[0], np.bincount(y), rtol=1e-6)
    assert sums.class_counts().sum() == 5000
    np.testing.assert_allclose(ones.second_moment(10.0), np.full((4, 4), 5000.0), rtol=1e-6)


def test_rows_read_anew_give_the_sums_of_rows_in_memory():
    x, y = clusters(5000, 8, CLASSES)
    kernel, bias = RNG.standard_normal((8, CLASSES)), np.zeros(CLASSES)
    found = [
        ClippedSums(Passes(as_table(x, y, CLASSES), "unit", resident_bytes=size), View()).gradient(
            kernel, bias, loss="softmax", clip_norm=0.2
        )[0]
        for size in (0, 1 << 30)
    ]
    np.testing.assert_array_equal(*found)


def test_examples_that_are_not_finite_add_exactly_nothing():
    x, y = clusters(300, DIM, CLASSES)
    broken = x.copy()
    broken[7, 2], broken[100, 0], broken[200] = np.nan, np.inf, 1e30
    kept = np.delete(np.arange(300), [7, 100, 200])
    view = VIEWS["all"]
    kernel, bias = RNG.standard_normal((4, CLASSES)), np.ones(CLASSES)
    zero, answers = np.zeros((4, CLASSES)), []
    for features, labels in ((broken, y), (x[kept], y[kept])):
        rows = as_table(features, labels, CLASSES)
        sums = ClippedSums(Passes(rows, "unit"), view)
        answers.append(
            [
                *sums.gradient(kernel, bias, loss="softmax", clip_norm=0.5),
                *sums.gradient(zero, bias, loss="softmax", clip_norm=0.5),
                sums.second_moment(1.0),
                sums.class_sums(1.0),
                sums.class_counts(),
            ]
        )
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert as_table(broken, y, CLASSES).bad_examples == 3


def test_float16_and_float64_rows_are_summed_as_float32():
    x, y = clusters(500, DIM, CLASSES)
    half = x.astype(np.float16)
    kernel = RNG.standard_normal((DIM, CLASSES))
    found = [
        ClippedSums(Passes(as_table(rows, y, CLASSES), "unit"), View()).gradient(
            kernel, np.zeros(CLASSES), loss="softmax", clip_norm=0.5
        )[0]
        for rows in (half, half.astype(np.float32), half.astype(np.float64))
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


_DISTRIBUTED = """
import numpy as np, tensorflow as tf
from tests.transfer.tables import clusters
from tfdp.transfer.passes import Passes
from tfdp.transfer.feature_table import as_table
from tfdp.transfer.clipped_sums import ClippedSums, View

x, y = clusters(5000, 8, 3)
kernel = np.random.default_rng(1).standard_normal((8, 3))
def gradient(strategy, size):
    sums = ClippedSums(Passes(as_table(x, y, 3), "unit", strategy, size), View(bias=1.0))
    return sums.gradient(kernel, np.ones(3), loss="softmax", clip_norm=0.2)
one = gradient(tf.distribute.get_strategy(), 1 << 30)
for size in (0, 1 << 30):
    two = gradient(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), size)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
print("equal")
"""


def test_two_devices_give_the_sum_of_one(run_in_subprocess):
    """Three blocks on two replicas: the last group is filled up with no rows."""
    assert "equal" in run_in_subprocess(_DISTRIBUTED, devices=2)


def test_sums_are_of_float32_products_on_every_device(monkeypatch):
    """B3."""
    asked = []
    monkeypatch.setattr(passes, "require_float32_products", lambda: asked.append(True))
    Passes(as_table(np.eye(CLASSES, dtype="float32"), np.arange(CLASSES), CLASSES))
    assert asked == [True]
