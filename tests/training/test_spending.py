"""What weights have cost is not forgotten by ordinary Keras flows."""

import copy

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import Ledger

STEPS = 4


def plan(noise=1.0, steps=STEPS):
    return tfdp.PrivacyPlan(500, 50, steps, 1.0, noise_multiplier=noise, delta=1e-5)


def trained(**kwargs):
    model = compiled(classifier(), plan(), **kwargs)
    model.fit(*separable(), verbose=0)
    return model


def test_a_saved_and_loaded_model_goes_on_with_what_was_spent(tmp_path):
    trained().save(tmp_path / "model.keras")
    model = compiled(keras.models.load_model(tmp_path / "model.keras"), plan(steps=2 * STEPS))
    assert model.ledger.updates == STEPS and model.updates_left == STEPS
    model.fit(*separable(), verbose=0)
    assert model.ledger.updates == 2 * STEPS
    assert model.privacy_report()["steps"] == 2 * STEPS


def test_a_loaded_model_counts_on_though_another_optimizer_came_between(tmp_path):
    trained().save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.compile("sgd", "mse")
    assert compiled(loaded, plan()).ledger.updates == STEPS


@pytest.mark.parametrize("seed", [None, 7])
def test_compiling_again_counts_on_with_and_without_a_seed(seed):
    model = trained(seed=seed)
    with pytest.raises(ValueError, match="plan of 4 updates"):
        compiled(model, plan(), seed=seed).fit(*separable(), verbose=0)
    model = compiled(model, plan(steps=2 * STEPS), seed=seed)
    model.fit(*separable(), verbose=0)
    assert model.ledger.updates == 2 * STEPS


def test_another_ledger_takes_over_what_was_spent():
    ledger = Ledger()
    model = compiled(trained(), plan(), ledger=ledger)
    assert model.ledger is ledger and ledger.updates == STEPS


def test_two_seeded_models_with_one_ledger_count_twice():
    ledger = Ledger()
    for _ in range(2):
        compiled(classifier(), plan(steps=2 * STEPS), ledger=ledger).fit(
            *separable(), epochs=1, steps_per_epoch=STEPS, verbose=0
        )
    assert ledger.updates == 2 * STEPS


def test_a_private_model_inside_another_brings_its_spending():
    inner = trained()
    outer = keras.Sequential([keras.Input((10,)), inner, keras.layers.Dense(2)])
    assert compiled(outer, plan()).ledger.updates == STEPS


def test_a_callback_that_puts_weights_back_without_their_ledger_is_refused(tmp_path):
    backup = tmp_path / "backup"

    class Crash(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def fit(*more):
        model = compiled(classifier(), plan())
        callbacks = [keras.callbacks.BackupAndRestore(backup), *more]
        model.fit(*separable(), epochs=2, steps_per_epoch=2, verbose=0, callbacks=callbacks)

    with pytest.raises(KeyboardInterrupt):
        fit(Crash())
    with pytest.raises(ValueError, match="CheckpointEvery"):
        fit()


def test_a_replaced_optimizer_is_refused():
    model = compiled(classifier(), plan())
    model.optimizer = tfdp.optimizers.DPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=0.0)
    with pytest.raises(ValueError, match="optimizer was replaced"):
        model.fit(*separable(), verbose=0)


def test_what_the_ledger_describes_cannot_be_exchanged_after_compile():
    model = compiled(classifier(), plan())
    with pytest.raises(AttributeError, match="compile again"):
        model.optimizer.privacy = plan(noise=100.0)
    model.optimizer.gradient_accumulation_steps = 2
    with pytest.raises(ValueError, match="gradient_accumulation_steps was set to 2"):
        model.fit(*separable(), verbose=0)
    model.optimizer.gradient_accumulation_steps = None
    model.optimizer.ledger = Ledger()
    with pytest.raises(ValueError, match="ledger was replaced"):
        model.fit(*separable(), verbose=0)
    assert model.ledger.updates == 0
    with pytest.raises(TypeError, match=r"ledger='folder': .*Ledger\('folder'\)"):
        compiled(classifier(), plan(), ledger="folder")


def test_c11_a_layer_frozen_by_a_callback_stops_the_run_before_the_next_update():
    class Freeze(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.layers[1].trainable = False

    model = compiled(classifier(), plan())
    with pytest.raises(ValueError, match="trainable weights changed"):
        model.fit(*separable(), verbose=0, callbacks=[Freeze()])
    assert model.ledger.updates == 1


def test_a_training_step_or_loss_of_the_models_own_is_refused_by_name():
    class Own(keras.Model):
        def compute_loss(self, **kwargs):
            return 0.0

    with pytest.raises(ValueError, match="Own overrides compute_loss"):
        compiled(Own(), plan())


def test_no_delta_and_other_numbers_than_the_plans_are_refused_before_the_first_update():
    without = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0)
    for model, kwargs, message in (
        (compiled(classifier(), without), {}, "no delta"),
        (compiled(classifier(), plan()), {"delta": 1e-9}, "delta=1e-09"),
        (compiled(classifier(), plan()), {"num_examples": 10**6}, "num_examples=1000000"),
        (compiled(classifier(), plan()), {"epochs": 0}, "epochs=0"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(*separable(), verbose=0, **kwargs)
        assert model.ledger.updates == 0


def test_callbacks_that_steer_by_private_metrics_are_warned_of():
    model = compiled(classifier(), plan())
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=100)
    with pytest.warns(UserWarning, match="EarlyStopping steers the training by 'loss'"):
        model.fit(*separable(), verbose=0, callbacks=[stop])


def test_weights_that_are_not_numbers_leave_metrics_alone():
    weight = np.ones(500, "float32")
    weight[::7] = np.nan
    model = compiled(classifier(), plan(), weighted_metrics=["accuracy"])
    history = model.fit(*separable(), sample_weight=weight, verbose=0)
    assert np.isfinite(history.history["accuracy"]).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_every_way_of_copying_a_private_model_gives_one_that_works(tmp_path):
    model = trained()
    features = separable()[0]
    keras.saving.save_model(model, tmp_path / "model.keras")
    copies = [
        keras.models.load_model(tmp_path / "model.keras"),
        copy.deepcopy(model),
        keras.models.clone_model(model),
        keras.models.model_from_json(model.to_json()),
    ]
    for copied in copies:
        copied.set_weights(model.get_weights())
        np.testing.assert_allclose(
            copied.predict(features, verbose=0), model.predict(features, verbose=0), atol=1e-6
        )
    assert not isinstance(copies[0], tfdp.DPModel)
    assert isinstance(model, tfdp.DPModel)
