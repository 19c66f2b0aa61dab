"""Models of every construction: nested inputs, frozen parts, other dtypes."""

import keras
import numpy as np
import pytest

from tests.clipping.models import clipped, dense_net, floats, ids, perturbed
from tests.clipping.reference import brute_force, check, policy, squared_error
from tfdp.clipping import ClippedGradient, UnsupportedLayerError, per_example_norms

layers = keras.layers


def picture_and_text():
    inputs = {"picture": layers.Input((3, 4)), "text": layers.Input((5,), dtype="int32")}
    text = layers.GlobalAveragePooling1D()(layers.Embedding(6, 4)(inputs["text"]))
    picture = layers.Flatten()(layers.Dense(4)(inputs["picture"]))
    return keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([picture, text])))


def test_dict_inputs_of_mixed_types():
    x = {"picture": floats(4, 3, 4), "text": ids(4, 5, below=6)}
    check(picture_and_text, x, floats(4, 2))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [[layers.Dense(4), layers.LayerNormalization()] for _ in range(2)]
        self.head = layers.Dense(2)

    def call(self, inputs, training=False):
        x, (shift, unused) = inputs
        for dense, norm in self.blocks:
            x = norm(x + dense(x + shift))
        return {"used": self.head(x), "unused": x, "absent": None}


def built_subclassed():
    model = Subclassed()
    model([floats(1, 4), (floats(1, 4), floats(1, 1))])
    return model


def test_a_subclassed_model_with_nested_inputs_that_returns_more_than_it_is_trained_on():
    x = [floats(3, 4), (floats(3, 4, seed=1), floats(3, 1))]
    y = floats(3, 2)

    model = built_subclassed()
    with policy("float64"):
        exact = built_subclassed()
    exact.set_weights(model.get_weights())
    reference = brute_force(exact, lambda y, p: squared_error(y, p["used"]), x, y)
    losses = {"used": squared_error, "unused": None, "absent": None}
    found = clipped(model, losses, x, dict.fromkeys(losses, y))
    np.testing.assert_allclose(found.norms, reference.norms, rtol=1e-5)


def test_frozen_layers_have_no_gradient_and_change_nothing_else():
    def build():
        model = perturbed(picture_and_text())
        model.layers[-1].trainable = False
        return model

    x = {"picture": floats(4, 3, 4), "text": ids(4, 5, below=6)}
    found = check(build, x, floats(4, 2))
    assert len(found.gradients) == 3


def test_float64_models_are_clipped_in_float64():
    with policy("float64"):
        model = dense_net()
    x, y = floats(5, 4).astype("float64"), floats(5, 3).astype("float64")
    reference = brute_force(model, squared_error, x, y)
    for engine in ("single_pass", "vectorized"):
        norms = clipped(model, squared_error, x, y, engine=engine).norms
        assert norms.dtype == "float64"
        np.testing.assert_allclose(norms, reference.norms, rtol=1e-12)


def test_norms_by_variable_add_up_to_the_joint_norm():
    x, y = floats(5, 4), floats(5, 3)
    model = dense_net()
    parts = per_example_norms(model, "mse", x, y, by_variable=True, jit_compile=False)
    joint = per_example_norms(model, "mse", x, y, jit_compile=False)
    assert parts.shape == (4, 5)
    np.testing.assert_allclose(np.sqrt((parts.numpy() ** 2).sum(0)), joint, rtol=1e-6)


def with_batch_norm():
    stack = [layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(name="moments")]
    return keras.Sequential([*stack, layers.Dense(2)])


def test_training_batch_norm_is_rejected_by_name():
    """A26."""
    with pytest.raises(UnsupportedLayerError, match="BatchNormalization 'moments'"):
        clipped(with_batch_norm(), "mse", floats(3, 4), floats(3, 2))


def test_frozen_batch_norm_is_accepted_and_keeps_its_moments():
    """A26, A27."""

    def build():
        model = with_batch_norm()
        norm = model.get_layer("moments")
        norm.trainable = False
        norm.moving_mean.assign([0.5, -1.0, 2.0])
        norm.moving_variance.assign([0.5, 1.0, 2.0])
        return model

    check(build, floats(3, 4), floats(3, 2))
    model = build()
    before = [v.numpy() for v in model.non_trainable_variables]
    clipped(model, "mse", floats(3, 4), floats(3, 2))
    for old, new in zip(before, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_normalization_over_the_batch_axis_is_rejected():
    model = keras.Sequential([layers.Input((4,), batch_size=3), layers.LayerNormalization(axis=0)])
    with pytest.raises(UnsupportedLayerError, match="batch axis"):
        clipped(model, "mse", floats(3, 4), floats(3, 4))


def test_layers_that_hand_states_to_the_next_batch_are_rejected():
    sequence = layers.Input((3, 2), batch_size=4)
    model = keras.Model(sequence, layers.GRU(2, stateful=True)(sequence))
    with pytest.raises(UnsupportedLayerError, match="is stateful.*stateful=False"):
        per_example_norms(model, "mse", floats(4, 3, 2), floats(4, 2))


def test_activity_regularizers_are_rejected():
    model = keras.Sequential([layers.Input((4,)), layers.Dense(2, activity_regularizer="l2")])
    with pytest.raises(UnsupportedLayerError, match="activity regularizer"):
        clipped(model, "mse", floats(3, 4), floats(3, 2))


def test_a_model_without_trainable_weights_is_rejected():
    model = dense_net()
    model.trainable = False
    with pytest.raises(ValueError, match="no trainable weights"):
        ClippedGradient(model, squared_error, 1.0)


def test_an_unknown_engine_is_rejected():
    with pytest.raises(ValueError, match="engine='magic'"):
        ClippedGradient(dense_net(), squared_error, 1.0, engine="magic")
