"""Private training learns: handwritten digits, in every way of clipping."""

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

import tfdp

TRAIN, CLASSES = 1500, 10


def digits():
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = (pixels[order] / 16).astype("float32")
    return (pixels[:TRAIN], labels[order][:TRAIN]), (pixels[TRAIN:], labels[order][TRAIN:])


@pytest.mark.parametrize("clipping", ["flat", "automatic", "per_layer", "quantile"])
def test_three_epochs_at_noise_one_half_reach_85_percent(clipping):
    """C5."""
    train, test = digits()
    plan = tfdp.PrivacyPlan(
        TRAIN, 100, 45, 1.0, noise_multiplier=0.5, delta=1e-5, clipping=clipping, accountant="rdp"
    )
    keras.utils.set_random_seed(3)
    net = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(CLASSES)]
    )
    model = tfdp.make_private(net)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tfdp.optimizers.DPAdam(0.01, privacy=plan)
    model.compile(optimizer, loss, metrics=["accuracy"], seed=1)
    history = model.fit(*train, epochs=3, verbose=0)
    assert len(history.epoch) == 3 and model.ledger.steps == 45
    assert model.evaluate(*test, verbose=0)[1] >= 0.85
