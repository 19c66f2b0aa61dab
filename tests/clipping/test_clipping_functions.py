"""Flat, automatic and per-layer clipping keep to their sensitivity."""

import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import clipped, dense_net, floats
from tests.clipping.reference import squared_error
from tfdp.clipping import ClippedGradient, clip_factors
from tfdp.privacy import AutomaticClipping, PerLayerClipping
from tfdp.privacy.clipping import FlatClipping

X, Y = floats(6, 4), 3 * floats(6, 3, seed=1)


def paths(model):
    return sorted({v.path.rpartition("/")[0] for v in model.trainable_variables})


def alone(model, clip_norm, clipping=None, row=2):
    """The contribution of one example, and what its norms are before clipping."""
    mask = np.arange(6) == row
    found = clipped(model, squared_error, X, Y, clip_norm, clipping=clipping, mask=mask)
    return found.gradients, found.squared_norms.numpy()[:, row]


def test_a_number_is_flat_clipping():
    model = dense_net()
    by_number, by_object = (
        clipped(model, squared_error, X, Y, 0.5, clipping=way) for way in (None, FlatClipping())
    )
    for a, b in zip(by_number.gradients, by_object.gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_automatic_clipping_gives_every_example_nearly_the_bound():
    gradients, squares = alone(dense_net(), 0.5, AutomaticClipping(gamma=0.1), row=1)
    norm = np.sqrt(squares.sum())
    assert float(tf.linalg.global_norm(gradients)) == pytest.approx(0.5 * norm / (norm + 0.1))
    automatic = ClippedGradient(dense_net(), squared_error, 0.5, clipping="automatic")
    assert automatic.clip_norm == 0.5


def test_per_layer_clipping_bounds_every_layer_apart():
    model = dense_net()
    first, second = paths(model)
    clip_norms = {first: 0.3, second: 0.4}
    assert ClippedGradient(model, squared_error, clip_norms).clip_norm == pytest.approx(0.5)
    gradients, squares = alone(model, clip_norms)
    norms = np.sqrt([squares[:2].sum(), squares[2:].sum()])
    assert (norms > 0.5).all()
    assert float(tf.linalg.global_norm(gradients[:2])) == pytest.approx(0.3, rel=1e-5)
    assert float(tf.linalg.global_norm(gradients[2:])) == pytest.approx(0.4, rel=1e-5)


def test_per_layer_clipping_by_one_number_shares_it_equally():
    gradients, _ = alone(dense_net(), 0.5, PerLayerClipping())
    for layer in (gradients[:2], gradients[2:]):
        assert float(tf.linalg.global_norm(layer)) == pytest.approx(0.5 / np.sqrt(2), rel=1e-5)
    assert float(tf.linalg.global_norm(gradients)) == pytest.approx(0.5, rel=1e-5)


def test_per_layer_clipping_of_a_layer_that_is_left_out_is_rejected():
    model = dense_net()
    with pytest.raises(ValueError, match="none of these layers holds"):
        clipped(model, squared_error, X, Y, {paths(model)[0]: 1.0})


def test_per_layer_bounds_without_a_weight_are_rejected_since_they_would_only_add_noise():
    model = dense_net()
    clip_norms = {**dict.fromkeys(paths(model), 1.0), "typo": 5.0}
    with pytest.raises(ValueError, match=r"no trainable weight belongs to \['typo'\]"):
        clipped(model, squared_error, X, Y, clip_norms)
    with pytest.raises(ValueError, match="expected the clip norm of one layer or more"):
        clipped(model, squared_error, X, Y, {})


def test_two_backward_passes_cannot_clip_per_layer():
    with pytest.raises(ValueError, match="per layer"):
        ClippedGradient(dense_net(), squared_error, 1.0, clipping="per_layer", engine="two_pass")


def test_a_subclass_of_flat_clipping_may_have_factors_of_its_own():
    class Half(FlatClipping):
        """Half of what flat clipping lets through."""

    @clip_factors.register
    def _(clipping: Half, clip_norm, squared_norms, weights):
        flat = clip_factors(FlatClipping(), clip_norm, squared_norms, weights)
        return [0.5 * factors for factors in flat]

    gradients, _ = alone(dense_net(), 0.5, Half())
    assert float(tf.linalg.global_norm(gradients)) == pytest.approx(0.25, rel=1e-5)
