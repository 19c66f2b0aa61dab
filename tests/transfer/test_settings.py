"""Settings that cannot work are refused when they are written, before anything is spent."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.transfer.tables import clusters
from tfdp.transfer import (
    ClassLeastSquares,
    ClassMeans,
    FeatureCovariance,
    FullBatch,
    LastLayer,
    LeastSquares,
    Logistic,
    Newton,
    OneStep,
    Preparation,
    Steps,
    Whitened,
    as_table,
)
from tfdp.transfer.fine_tuning import FineTune, SampledHead
from tfdp.transfer.studies.held_out import split

NAN, INF = float("nan"), float("inf")
ABOVE, AT_LEAST = "must be a finite number above 0", "must be a finite number of at least 0"
FINITE, SHARE = "must be a finite number, got", "must lie strictly between 0 and 1"
WHOLE, BELOW = "must be a whole number of at least 1", r"must lie in \[0, 1\)"
CHOICE, KIND = "must be one of", "must be a Steps"
X, Y = clusters(200, 5, 4)

#: Of every class of settings, by name: values that are rejected, and in which words.
REJECTED = [
    (Steps, "steps", (0, 2.5, "3", True), WHOLE),
    (Steps, "clip_norm", (0.0, NAN, INF, "1"), ABOVE),
    (Steps, "loss", ("mse",), CHOICE),
    (Steps, "optimizer", ("rms", keras.optimizers.Adam()), CHOICE),
    (Steps, "learning_rate", (0.0, -1.0, NAN), ABOVE),
    (Steps, "logit_noise", (0.0, NAN), ABOVE),
    (Steps, "momentum", (-0.5, 1.0, NAN), BELOW),
    (Steps, "init", (-1.0, INF), AT_LEAST),
    (Steps, "fixed_bias", (NAN, "x"), FINITE),
    (Steps, "average", (1.0, -0.1), BELOW),
    (FullBatch, "loop", (None, 3), KIND),
    (Whitened, "loop", (None,), KIND),
    (Whitened, "share", (0.0, 1.0, NAN), SHARE),
    (Whitened, "ridge", (-5.0, NAN), AT_LEAST),
    (OneStep, "learning_rate", (0.0, None), ABOVE),
    (OneStep, "fixed_bias", (NAN,), FINITE),
    (OneStep, "init", (-1.0,), AT_LEAST),
    (OneStep, "optimizer", ("foo",), CHOICE),
    (OneStep, "loss", ("hinge",), CHOICE),
    (OneStep, "prototypes", ("no",), "must be True or False"),
    (LeastSquares, "share", (0.0, 1.0, 1.5, NAN, "a"), SHARE),
    (LeastSquares, "ridge", (-1.0, NAN), AT_LEAST),
    (LeastSquares, "clip_norm", (0.0, -1.0, NAN), ABOVE),
    (ClassLeastSquares, "alpha", (-1.0,), AT_LEAST),
    (ClassLeastSquares, "clip_norm", (0.0,), ABOVE),
    (ClassLeastSquares, "shares", ((0.5, 0.5, 0.5), (0.1, 0.1, 0.1)), "must add up to 1"),
    (ClassLeastSquares, "shares", ((1.0, 0.0, 0.0), (1.5, -0.25, -0.25)), SHARE),
    (ClassLeastSquares, "shares", ((0.5, 0.5), "abc", 1.0), "must be 3 numbers"),
    (ClassMeans, "share", (1.0,), SHARE),
    (ClassMeans, "clip_norm", (NAN,), ABOVE),
    (FeatureCovariance, "share", (0.0,), SHARE),
    (FeatureCovariance, "loop", (None,), KIND),
    (Newton, "ridge", (-5.0,), AT_LEAST),
    (Logistic, "l2", (-1.0,), AT_LEAST),
    (Logistic, "iterations", (0, 2.5), WHOLE),
    (Preparation, "row_norm", (0.0, -1.0, NAN, INF), ABOVE),
    (Preparation, "center", ("mean", True), CHOICE),
    (Preparation, "components", (0, 2.5, "4"), WHOLE),
    (Preparation, "balance", ("no", 1), "must be True or False"),
    (Preparation, "bias", (NAN, "x"), FINITE),
    (Preparation, "center_share", (0.0, 1.0), SHARE),
    (Preparation, "counts_share", (NAN,), SHARE),
    (SampledHead, "batch_size", (0, 2.5), WHOLE),
    (SampledHead, "epochs", (0.0, NAN), ABOVE),
    (SampledHead, "clip_norm", (-1.0, NAN), ABOVE),
    (SampledHead, "learning_rate", (0.0, NAN), ABOVE),
    (SampledHead, "momentum", (1.0,), BELOW),
    (SampledHead, "microbatch_size", (0,), WHOLE),
    (FineTune, "backbone_rate", (0.0, NAN), ABOVE),
    (FineTune, "rank", (0,), WHOLE),
    (FineTune, "layers", (1.5,), WHOLE),
]


@pytest.mark.parametrize(
    ("settings", "name", "value", "words"),
    [(kind, name, value, words) for kind, name, values, words in REJECTED for value in values],
)
def test_what_cannot_work_is_rejected_by_name(settings, name, value, words):
    with pytest.raises((TypeError, ValueError), match=f"{name} {words}") as error:
        settings(**{name: value})
    assert ", got " in str(error.value)


def test_what_can_work_is_not_rejected():
    Steps(steps=np.int64(3), optimizer=tfdp.optimizers.DPSGD(0.1, 1.0, 1.0), average=0, init=1)
    Steps(momentum=0, fixed_bias=-10, learning_rate=np.float32(0.5))
    ClassLeastSquares(shares=[0.25, 0.25, 0.5], ridge=0)
    OneStep(loss="sigmoid", fixed_bias=-1e4)
    Preparation(components=np.int32(3), bias=-1.0)
    for kind in dict.fromkeys(settings for settings, *_ in REJECTED):
        assert dataclasses.replace(kind()) == kind()


def test_shares_that_leave_a_method_nothing_are_rejected():
    with pytest.raises(ValueError, match="center_share=0.6 and counts_share=0.4 leave no"):
        Preparation(center="private", balance=True, center_share=0.6, counts_share=0.4)
    Preparation(center_share=0.6, counts_share=0.6)  # neither is published


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": "1"}, "epsilon must be a finite number above 0, got '1'"),
        ({"num_classes": 2.5}, "num_classes must be a whole number of at least 2, got 2.5"),
        ({"num_classes": "3"}, "num_classes must be a whole number of at least 2, got '3'"),
        ({"preparation": {}}, "preparation must be a Preparation, got {}"),
        ({"seed": "a"}, "seed must be a whole number, or None for fresh entropy, got 'a'"),
        ({"seed": 1.0}, "seed must be a whole number"),
        ({"strategy": "mirrored"}, "strategy must be a Strategy, got 'mirrored'"),
    ],
)
def test_arguments_of_another_type_are_named(arguments, message):
    usual = {"num_classes": 4, "num_examples": 200, "epsilon": 1.0}
    with pytest.raises(TypeError, match=message):
        LastLayer(**{**usual, **arguments})


def test_features_that_do_not_fit_the_head_are_rejected():
    rows = as_table(X, Y, 4)
    with pytest.raises(ValueError, match="the features have 4 classes, but .* num_classes=3"):
        LastLayer(3, num_examples=200, epsilon=1.0).fit(rows)
    head = LastLayer(4, num_examples=200, epsilon=1.0).fit(rows)
    for call in (head.fit, head.evaluate):
        with pytest.raises(ValueError, match="labels were given with a FeatureTable"):
            call(rows, Y)
    with pytest.raises(ValueError, match="the features have 5 classes"):
        head.evaluate(as_table(X, Y, 5))
    with pytest.raises(TypeError, match="features must be an array .*, got a _TensorSlice"):
        head.fit(tf.data.Dataset.from_tensor_slices((X, Y)))
    with pytest.raises(TypeError, match="labels are missing"):
        head.fit(X)
    assert head.privacy_report()["steps"] == 32  # nothing was spent on them


def test_a_held_out_share_that_is_not_a_number_is_named():
    with pytest.raises(ValueError, match="held_out must lie strictly between 0 and 1, got nan"):
        split(as_table(X, Y, 4), NAN)
