"""Callbacks that steer a private training or change its weights, and averages of weights."""

import warnings

import keras
import pytest

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import PrivacyPlan

FEATURES, LABELS = separable()


def plan(steps=4, noise=1.0):
    return PrivacyPlan(500, 50, steps, 1.0, noise_multiplier=noise, delta=1e-5)


def test_averages_of_weights_are_taken_after_the_noise():
    """Moving averages are post-processing: the averaged weights move by what noisy ones do."""
    optimizer = tfdp.optimizers.DPSGD(
        1.0, privacy=plan(noise=5.0), use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1
    )
    model = compiled(classifier(), plan(), optimizer)
    model.fit(FEATURES, LABELS, verbose=0)
    assert model.ledger.steps == 4
    assert model.ledger.segments()[0].settings.noise_multiplier == 5.0


def test_callbacks_that_choose_weights_by_private_metrics_are_warned_of(tmp_path):
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", monitor="loss", save_best_only=True
    )
    with pytest.warns(
        UserWarning, match="ModelCheckpoint controls training, or chooses weights, by"
    ):
        compiled(classifier(), plan()).fit(FEATURES, LABELS, verbose=0, callbacks=[best])


class Resetting(keras.callbacks.Callback):
    """Puts its own weights into the model after every step."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.trainable_variables[0].assign_add(
            keras.ops.ones_like(self.model.trainable_variables[0])
        )


def test_callbacks_that_change_weights_are_warned_of_once():
    model = compiled(classifier(), plan())
    with pytest.warns(UserWarning, match="changed weights between two steps") as found:
        model.fit(FEATURES, LABELS, steps_per_epoch=2, callbacks=[Resetting()], verbose=0)
    assert sum("between two steps" in str(w.message) for w in found) == 1


def test_callbacks_that_leave_the_weights_alone_are_not():
    model = compiled(classifier(), plan())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(FEATURES, LABELS, callbacks=[keras.callbacks.LambdaCallback()], verbose=0)
