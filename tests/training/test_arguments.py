"""Arguments of the wrong kind are named before anything is spent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.data import ArraySource
from tfdp.privacy import PrivacyPlan
from tfdp.training.run import evaluated_at_once

X, Y = separable(24)


def plan(**changes):
    values = {"num_examples": 24, "batch_size": 8, "steps": 3, "clip_norm": 1.0, "delta": 1e-3}
    return PrivacyPlan(**{**values, "noise_multiplier": 1.0, **changes})


def batched(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jit_compile": "yes"}, "jit_compile='yes': expected True, False or \"auto\""),
        ({"engine": "fast"}, "engine='fast': expected one of auto, single_pass"),
        (
            {"microbatch_size": True},
            "microbatch_size must be a whole .* 1, or None, got True",
        ),
        ({"seed": True}, "seed must be a whole number, or None for fresh entropy, got True"),
    ],
)
def test_compile_names_arguments_of_the_wrong_kind(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compiled(classifier(), plan(), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"steps_per_epoch": "a"},
            "steps_per_epoch must be a whole .* 1, or None, got 'a'",
        ),
        (
            {"initial_epoch": -1},
            "initial_epoch must be a whole .* 0, or None, got -1",
        ),
        (
            {"validation_batch_size": 0},
            "validation_batch_size must be a whole .* 1, or None, got 0",
        ),
        (
            {"validation_steps": "a", "validation_data": (X, Y)},
            "validation_steps must be a whole .* 0, or None, got 'a'",
        ),
        ({"validation_freq": 0}, "validation_freq must be a whole .* 1, or a list .*, got 0"),
        ({"validation_freq": [1, "a"]}, "each of validation_freq must be a whole .* 1, got 'a'"),
        ({"validation_data": "held_out.npz"}, "validation_data must be .* got 'held_out.npz'"),
        ({"validation_data": X}, "validation_data must be"),
        ({"validation_data": (X,)}, "validation_data must be"),
        ({"validation_data": (X, Y[:3])}, "validation_data: .*same number of examples.*24.*3"),
        (
            {"validation_data": (X[:, :1], Y)},
            r"validation_data: .* cannot be run on x of shape \(1,\) and y of shape \(\)",
        ),
        ({"validation_data": (X, np.stack([Y, Y], axis=1))}, r"validation_data: .* y of .*\(2,\)"),
        ({"validation_data": batched(X[:, :1], Y)}, r"validation_data: .* x of shape \(1,\)"),
        ({"callbacks": ["a"]}, "callbacks holds 'a'"),
        ({"class_weight": [1, 2]}, "class_weight=.*expected a dict"),
        ({"class_weight": {0: "a", 1: 2}}, r"class_weight\[0\] must be a finite number .*'a'"),
        ({"y": {"a": Y}}, "its loss and metrics cannot be run on examples with"),
    ],
    ids=str,
)
def test_fit_names_arguments_of_the_wrong_kind_before_it_spends(arguments, message):
    model = compiled(classifier(), plan(), jit_compile=False)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(**{"x": X, "y": Y, "verbose": 0, **arguments})
    assert model.ledger.steps == 0


def test_numbers_and_flags_of_numpy_are_taken():
    two = np.int64(2)
    options = {"jit_compile": np.False_, "steps_per_execution": two, "microbatch_size": two}
    model = compiled(classifier(), plan(secure=np.False_), **options)
    history = model.fit(X, Y, verbose=0, validation_data=(X, Y), validation_freq=np.int64(1))
    assert model.optimizer.iterations == model.ledger.steps == 3
    assert "val_loss" in history.history


def test_batches_are_taken_for_validation():
    model = compiled(classifier(), plan(), jit_compile=False)
    assert "val_loss" in model.fit(X, Y, verbose=0, validation_data=batched(X, Y)).history


def test_text_is_taken_for_validation_as_for_training():
    words = keras.Input((1,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=["a", "b"])(words)
    table = keras.layers.Embedding(3, 2)(ids)
    model = compiled(keras.Model(words, keras.layers.Flatten()(table)), plan(), jit_compile=False)
    x = np.array([["a"], ["b"], ["c"]] * 8)
    assert "val_loss" in model.fit(x, Y, verbose=0, validation_data=(x, Y)).history


def mean_over_the_batch(y_true, y_pred):
    return keras.ops.mean(y_pred)


def test_a_metric_without_a_value_for_every_example_is_named_before_anything_is_spent():
    model = compiled(classifier(), plan(), metrics=[mean_over_the_batch], jit_compile=False)
    with pytest.raises(ValueError, match="metrics .'mean_over_the_batch'.*one value per example"):
        model.fit(X, Y, verbose=0)
    assert model.ledger.steps == 0


@pytest.mark.parametrize("name", ["num_examples", "batch_size", "delta"])
def test_numbers_given_to_fit_as_text_are_named(name):
    optimizer = tfdp.optimizers.DPSGD(1.0, l2_norm_clip=1.0, noise_multiplier=1.0)
    model = compiled(classifier(), None, optimizer)
    given = {"num_examples": 24, "batch_size": 8, "delta": 1e-3, name: "1"}
    with pytest.raises(TypeError, match=f"{name} must .*, got '1'"):
        model.fit(X, Y, epochs=1, verbose=0, **given)


def test_targets_of_text_are_named():
    model = compiled(classifier(), plan(), jit_compile=False)
    with pytest.raises(TypeError, match="y holds text"):
        model.fit(X, np.array(["a"] * 24), verbose=0)


def test_a_model_without_weights_to_train_is_called_that():
    model = keras.Sequential([keras.layers.Dense(2, trainable=False)])
    with pytest.raises(ValueError, match="has no trainable weights"):
        compiled(model, plan()).fit(X, Y, verbose=0)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (5, "public_examples must be .* got a int"),
        ((X[:3],), "public_examples must be .* got 1 parts"),
        ((X[:3], Y[:3], np.ones(3)), "public_examples must be .* got 3 parts"),
        ((X[:3], Y[:2]), "same number of examples"),
    ],
)
def test_public_examples_of_the_wrong_kind_are_named(examples, message):
    model = compiled(classifier(), plan(), public_examples=examples)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(X, Y, verbose=0)


def test_predict_takes_a_source_of_examples():
    model = compiled(classifier(), plan())
    expected = model.predict(X, verbose=0)
    found = model.predict(ArraySource(X, Y), batch_size=5, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([1], "rate_factors=.*expected a dict"),
        ({1: 1.0}, "rate_factors=.*expected a dict"),
        ({"kernel": "b"}, r"rate_factors\['kernel'\] must be a finite number, got 'b'"),
        ({"kernel": np.nan}, r"rate_factors\['kernel'\] must be a finite number, got nan"),
    ],
)
def test_rate_factors_of_the_wrong_kind_are_named(factors, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tfdp.optimizers.DPSGD(1.0, privacy=plan(), rate_factors=factors)


def test_rate_factors_that_meet_no_variable_are_rejected():
    optimizer = tfdp.optimizers.DPSGD(1.0, privacy=plan(), rate_factors={"decoder": 2.0})
    model = compiled(classifier(), None, optimizer)
    with pytest.raises(ValueError, match="no variable has .*decoder.* in its path"):
        model.fit(X, Y, verbose=0)
    assert model.ledger.steps == 0


def test_a_plan_of_another_kind_is_named():
    with pytest.raises(TypeError, match="privacy='a': expected a tfdp.PrivacyPlan"):
        tfdp.optimizers.DPSGD(1.0, privacy="a")


@pytest.mark.parametrize(("asked", "examples"), [(None, 6), (3, 4), (8, 8)])
def test_replicas_share_evenly_what_is_evaluated(asked, examples):
    """Keras fails on a first batch of 3 for two replicas, after an epoch has been spent."""
    model = compiled(classifier(), plan(), microbatch_size=5)
    assert evaluated_at_once(asked, model._private, model.privacy, replicas=2) == examples
