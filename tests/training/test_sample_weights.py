"""Weights by example and by token mean what they mean in Keras."""

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import compiled

ROWS, TOKENS, CLASSES = 24, 5, 3
LOSS = {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
PLAN = tfdp.PrivacyPlan(ROWS, ROWS, 1, 1.0, noise_multiplier=1.0, delta=1e-3)
rng = np.random.default_rng(0)
BY_TOKEN = rng.uniform(0.5, 2, (ROWS, TOKENS)).astype("float32")


def net(shape):
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input(shape), keras.layers.Dense(CLASSES)])


@pytest.mark.parametrize(
    ("tokens", "weights", "as_keras_takes_them"),
    [
        ((), BY_TOKEN[:, 0], BY_TOKEN[:, 0]),
        ((), BY_TOKEN[:, :1], BY_TOKEN[:, :1]),
        ((TOKENS,), BY_TOKEN[:, 0], BY_TOKEN[:, :1]),  # on which Keras itself stops
        ((TOKENS,), BY_TOKEN[:, :1], BY_TOKEN[:, :1]),
        ((TOKENS,), BY_TOKEN, BY_TOKEN),
        ((TOKENS,), BY_TOKEN[..., None], BY_TOKEN),
    ],
    ids=["N", "N_1", "tokens_N", "tokens_N_1", "tokens_N_T", "tokens_N_T_1"],
)
def test_weights_of_every_form_give_the_loss_and_metrics_of_keras(
    tokens, weights, as_keras_takes_them
):
    x = np.random.default_rng(1).normal(size=(ROWS, *tokens, 4)).astype("float32")
    y = np.random.default_rng(2).integers(0, CLASSES, (ROWS, *tokens))
    plain = net((*tokens, 4))
    plain.compile("sgd", **LOSS, weighted_metrics=["accuracy"])
    expected = plain.evaluate(
        x, y, sample_weight=as_keras_takes_them, batch_size=ROWS, verbose=0, return_dict=True
    )
    model = compiled(net((*tokens, 4)), PLAN, **LOSS, weighted_metrics=["accuracy"])
    found = model.fit(x, y, sample_weight=weights, verbose=0).history
    for name, value in expected.items():
        assert found[name] == pytest.approx([value], rel=1e-5), name


def test_class_weights_multiply_weights_by_column():
    x = np.random.default_rng(1).normal(size=(ROWS, 4)).astype("float32")
    y = np.random.default_rng(2).integers(0, CLASSES, ROWS)
    by_class = {0: 1.0, 1: 3.0, 2: 0.5}
    whole = BY_TOKEN[:, 0] * np.array([by_class[k] for k in y], "float32")
    losses = [
        compiled(net((4,)), PLAN, **LOSS).fit(x, y, verbose=0, **weights).history["loss"]
        for weights in (
            {"sample_weight": whole},
            {"sample_weight": BY_TOKEN[:, :1], "class_weight": by_class},
        )
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
