"""The Keras-like face."""

import json
import math

import keras
import numpy as np
import pytest

import tfdp
from tests.transfer.tables import clusters
from tfdp.transfer import FullBatch, LastLayer, Preparation, Steps

CLASSES, DIM, ROWS = 3, 8, 400
X, Y = clusters(ROWS, DIM, CLASSES, seed=1)
FULL = {"num_examples": ROWS, "epsilon": 4.0, "delta": 1e-5}


def test_four_lines_and_a_report():
    head = LastLayer(CLASSES, **FULL).fit(X, Y)
    assert head.evaluate(X, Y)["accuracy"] > 0.9
    probabilities = head.predict(X[:5])
    assert probabilities.shape == (5, CLASSES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    report = head.privacy_report()
    assert 3.99 < report["epsilon"] <= 4.0
    assert report["sampling"] == "full_batch" and report["steps"] == report["planned_steps"] == 32
    assert [line["name"] for line in report["releases"]] == ["center", "second moment", "gradient"]
    assert "center (3.0%)" in report.summary_text()
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_second_fit_spends_as_much_as_the_first():
    head = LastLayer(CLASSES, **FULL, method="one_step").fit(X, Y)
    once = head.privacy_report()["epsilon"]
    first = head.head.kernel
    with pytest.warns(UserWarning, match="fitted before, within its budget"):
        head.fit(X, Y)
        head.fit(X, Y)
    report = head.privacy_report()
    assert report["epsilon"] > 1.5 * once
    assert [(r["planned"], r["made"]) for r in report["releases"]] == [(1, 3)]
    assert not np.any(first == head.head.kernel)


def test_a_seed_repeats_and_its_absence_does_not():
    kernels = [
        LastLayer(CLASSES, **FULL, method="one_step", seed=seed).fit(X, Y).head.kernel
        for seed in (7, 7, 8, None, None)
    ]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    for other in kernels[2:]:
        assert not np.any(kernels[0] == other)
    assert not np.any(kernels[3] == kernels[4])
    seeded = LastLayer(CLASSES, **FULL, method="one_step", seed=7).fit(X, Y).privacy_report()
    assert any("seed" in note for note in seeded["notes"])


def test_the_keras_model_gives_the_logits_and_survives_saving(tmp_path):
    head = LastLayer(CLASSES, **FULL, method="whitened").fit(X, Y)
    model = head.to_keras()
    np.testing.assert_allclose(model(X), head.logits(X), rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "head.keras")
    loaded = keras.saving.load_model(tmp_path / "head.keras")
    np.testing.assert_array_equal(loaded(X), model(X))
    zeros = np.zeros((2, DIM), np.float32)
    np.testing.assert_allclose(model(zeros), head.logits(zeros), rtol=1e-5)


@pytest.mark.parametrize("behind", [False, True])
def test_a_keras_model_of_the_head_continues_the_ledger_of_the_head(behind):
    head = LastLayer(CLASSES, **FULL).fit(X, Y)
    spent = head.privacy_report()["epsilon"]
    backbone = keras.Sequential([keras.Input((DIM,)), keras.layers.Dense(DIM)]) if behind else None
    model = tfdp.make_private(head.to_keras(backbone))
    del head
    plan = tfdp.PrivacyPlan(ROWS, ROWS, 1, 1.0, noise_multiplier=100.0, delta=1e-5)
    model.compile(
        tfdp.optimizers.DPSGD(0.1, privacy=plan),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    assert model.ledger.steps == 32
    assert model.privacy_report()["epsilon"] == pytest.approx(spent, rel=1e-6)


def test_behind_a_backbone_it_classifies_pictures():
    backbone = keras.Sequential([keras.Input((2, 4)), keras.layers.Flatten()])
    head = LastLayer(CLASSES, **FULL, method="one_step").fit(X, Y)
    model = head.to_keras(backbone)
    np.testing.assert_allclose(model(X.reshape(-1, 2, 4)), head.logits(X), rtol=1e-4, atol=1e-5)


def test_public_centering_and_components_cost_nothing():
    public, _ = clusters(200, DIM, CLASSES, seed=9)
    preparation = Preparation("unit", center="public", components=4)
    head = LastLayer(
        CLASSES, **FULL, method="one_step", preparation=preparation, public_features=public
    ).fit(X, Y)
    assert [line["share"] for line in head.privacy_report()["releases"]] == [1.0]
    assert np.linalg.matrix_rank(head.head.kernel) <= 4
    with pytest.raises(ValueError, match="public_features"):
        LastLayer(CLASSES, **FULL, preparation=preparation).fit(X, Y)
    with pytest.raises(ValueError, match="components must lie in 1..8"):
        LastLayer(
            CLASSES,
            **FULL,
            preparation=Preparation(components=9),
            public_features=public,
        ).fit(X, Y)


def test_infinite_epsilon_is_said_to_be_no_privacy():
    report = LastLayer(CLASSES, num_examples=ROWS, epsilon=math.inf).fit(X, Y).privacy_report()
    assert math.isinf(report["epsilon"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"epsilon": None}, "exactly one of epsilon and noise_multiplier"),
        ({"noise_multiplier": 1.0}, "exactly one of epsilon and noise_multiplier"),
        ({"delta": 0.0}, "delta must"),
        ({"num_examples": 0}, "num_examples must"),
        ({"method": "nosuch"}, "method must be one of auto, one_step"),
        ({"adjacency": "zero_out"}, "adjacency"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {"num_classes": CLASSES, **FULL, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        LastLayer(**arguments)


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (lambda: Steps(loss="hinge"), "loss must be one of softmax, sigmoid"),
        (lambda: Steps(optimizer="rmsprop"), "optimizer must be one of sgd"),
        (lambda: Steps(steps=0), "steps must be a whole number of at least 1"),
        (lambda: Steps(clip_norm=0), "clip_norm"),
        (lambda: Steps(average=1.0), "average must lie"),
        (lambda: Preparation("cube"), "normalize must be one of none, unit, root"),
        (lambda: Preparation(center="median"), "center must be one of none"),
        (lambda: Preparation(center_share=1.0), "center_share must lie"),
    ],
)
def test_wrong_settings_are_named(maker, message):
    with pytest.raises(ValueError, match=message):
        maker()


def test_a_number_of_examples_far_from_the_data_is_rejected():
    """Near it is what privacy hides; far from it sums would be divided by the wrong number."""
    with pytest.raises(ValueError, match="num_examples=500, but there are 400"):
        LastLayer(CLASSES, num_examples=500, epsilon=1.0).fit(X, Y)
    LastLayer(CLASSES, num_examples=401, epsilon=1.0, method="one_step").fit(X, Y)


def test_nothing_is_said_before_fit():
    head = LastLayer(CLASSES, **FULL)
    for call in (head.privacy_report, head.to_keras, lambda: head.predict(X)):
        with pytest.raises(RuntimeError, match="call fit"):
            call()


def test_other_widths_are_rejected_at_prediction():
    head = LastLayer(CLASSES, **FULL, method="one_step").fit(X, Y)
    with pytest.raises(ValueError, match=r"features must have shape \[B, 8\]"):
        head.predict(X[:, :7])


def test_a_class_without_examples_is_just_never_learned():
    head = LastLayer(CLASSES + 1, **FULL, method=FullBatch()).fit(X, Y)
    assert head.evaluate(X, Y)["accuracy"] > 0.85
