"""What weights have cost is not forgotten by ordinary Keras flows."""

import copy
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy import Ledger, Segment, StepSettings

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
    assert model.ledger.steps == STEPS and model.steps_left == STEPS
    model.fit(*separable(), verbose=0)
    assert model.ledger.steps == 2 * STEPS
    assert model.privacy_report()["steps"] == 2 * STEPS


def test_a_loaded_model_counts_on_though_another_optimizer_came_between(tmp_path):
    trained().save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.compile("sgd", "mse")
    assert compiled(loaded, plan()).ledger.steps == STEPS


@pytest.mark.parametrize("seed", [None, 7])
def test_compiling_again_counts_on_with_and_without_a_seed(seed):
    model = trained(seed=seed)
    with pytest.raises(ValueError, match="plan allows 4 steps.* spent all of it"):
        compiled(model, plan(), seed=seed).fit(*separable(), verbose=0)
    model = compiled(model, plan(steps=2 * STEPS), seed=seed)
    model.fit(*separable(), verbose=0)
    assert model.ledger.steps == 2 * STEPS


def test_another_ledger_takes_over_what_was_spent():
    ledger = Ledger()
    model = compiled(trained(), plan(), ledger=ledger)
    assert model.ledger is ledger and ledger.steps == STEPS


def test_two_seeded_models_with_one_ledger_count_twice():
    ledger = Ledger()
    for _ in range(2):
        compiled(classifier(), plan(steps=2 * STEPS), ledger=ledger).fit(
            *separable(), epochs=1, steps_per_epoch=STEPS, verbose=0
        )
    assert ledger.steps == 2 * STEPS


def test_a_private_model_inside_another_brings_its_spending():
    inner = trained()
    outer = keras.Sequential([keras.Input((10,)), inner, keras.layers.Dense(2)])
    assert compiled(outer, plan()).ledger.steps == STEPS


def test_a_callback_that_puts_weights_back_without_their_ledger_is_rejected(tmp_path):
    model = compiled(classifier(), plan())
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(ValueError, match="CheckpointEvery"):
        model.fit(*separable(), verbose=0, callbacks=[backup])

    class PutBack(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.optimizer.iterations.assign(3)

    with pytest.raises(ValueError, match="A callback restored other weights"):
        model.fit(*separable(), verbose=0, callbacks=[PutBack()])
    assert model.ledger.steps == 0


def _through_weights(source, target, folder):
    source.save_weights(folder / "all.weights.h5")
    target.load_weights(folder / "all.weights.h5")


def _through_checkpoint(source, target, folder):
    def checkpoint(model):
        return tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    path = checkpoint(source).save(folder / "plain")
    target.optimizer.build(target.trainable_variables)
    checkpoint(target).restore(path)


@pytest.mark.parametrize("bring", [_through_weights, _through_checkpoint])
def test_weights_that_came_without_their_ledger_are_neither_reported_nor_trained(bring, tmp_path):
    source, target = trained(), compiled(classifier(), plan(steps=2 * STEPS))
    bring(source, target, tmp_path)
    for use in (target.privacy_report, lambda: target.fit(*separable(), verbose=0)):
        with pytest.raises(ValueError, match="taken 4 steps, but the ledger holds 0.*load_model"):
            use()
    assert target.ledger.steps == 0
    target.compile(target.optimizer, target.loss, ledger=source.ledger)  # the cure
    target.fit(*separable(), verbose=0)
    assert target.privacy_report()["steps"] == 2 * STEPS


def test_a_seeded_run_set_back_would_make_its_noise_again_and_is_rejected(tmp_path):
    model = compiled(classifier(), plan(steps=3 * STEPS), seed=7)
    model.save_weights(tmp_path / "first.weights.h5")
    model.fit(*separable(), epochs=1, steps_per_epoch=STEPS, verbose=0)
    model.load_weights(tmp_path / "first.weights.h5")
    model.optimizer.iterations.assign(0)
    features, labels = separable()
    with pytest.raises(ValueError, match="seed=7: optimizer.iterations was set back from 4 to 0"):
        model.fit(-features, labels, verbose=0)
    assert model.ledger.steps == STEPS
    assert "releases that share a seed share their noise" in str(model.privacy_report()["notes"])
    unseeded = compiled(model, plan(steps=3 * STEPS), seed=None)  # the cure
    unseeded.fit(-features, labels, verbose=0)
    assert unseeded.ledger.steps == 3 * STEPS


def test_an_optimizer_of_other_weights_is_rejected_and_their_ledger_stays():
    first = trained()
    for other in (classifier(), keras.Sequential([keras.layers.Dense(2)])):
        with pytest.raises(ValueError, match="built for other weights"):
            compiled(other, None, first.optimizer)
    assert first.optimizer.ledger is first.ledger
    late = compiled(keras.Sequential([keras.layers.Dense(2)]), plan())
    late.optimizer.build(first.trainable_variables)
    with pytest.raises(ValueError, match="built for other weights"):
        late.fit(*separable(), verbose=0)
    assert late.ledger.steps == 0


@pytest.mark.parametrize("save", ["method", "function"])
def test_a_model_is_saved_with_its_own_ledger_whatever_its_optimizer_was_used_for(save, tmp_path):
    ledger, other = Ledger(), Ledger()
    ledger.record(plan().settings)
    optimizer = tfdp.optimizers.DPSGD(1.0, privacy=plan())
    first = compiled(classifier(), None, optimizer, ledger=ledger)
    compiled(classifier(), None, optimizer, ledger=other)
    if save == "method":
        first.save(tmp_path / "model.keras")
    else:
        keras.saving.save_model(first, tmp_path / "model.keras")
    assert optimizer.ledger is other
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert compiled(loaded, plan()).ledger.steps == 1


def test_fit_inside_fit_and_compile_inside_fit_are_rejected():
    rejected = []

    class Again(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            for call in (
                lambda: self.model.fit(*separable(), verbose=0),
                lambda: compiled(self.model, plan()),
            ):
                with pytest.raises(ValueError) as error:
                    call()
                rejected.append(str(error.value))

    model = compiled(classifier(), plan())
    model.fit(*separable(), verbose=0, callbacks=[Again()])
    assert len(rejected) == 2 * STEPS and model.ledger.steps == STEPS
    assert all("training" in message for message in rejected)
    with pytest.raises(ValueError, match="spent all of it"):  # and not for ever
        model.fit(*separable(), verbose=0)


def test_two_threads_cannot_train_one_model_at_once():
    model, errors, begun = compiled(classifier(), plan()), [], threading.Event()

    def second():
        begun.wait()
        try:
            model.fit(*separable(), verbose=0)
        except ValueError as error:
            errors.append(str(error))

    class WaitForIt(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            begun.set()
            thread.join()

    thread = threading.Thread(target=second)
    thread.start()
    model.fit(*separable(), verbose=0, callbacks=[WaitForIt()])
    assert ["already training" in error for error in errors] == [True]
    assert model.ledger.steps == STEPS


def test_a_replaced_optimizer_is_rejected():
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
    assert model.ledger.steps == 0
    with pytest.raises(TypeError, match=r"ledger='folder': .*Ledger\('folder'\)"):
        compiled(classifier(), plan(), ledger="folder")


def test_a_layer_frozen_by_a_callback_stops_the_run_before_the_next_step():
    """C11."""

    class Freeze(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.layers[1].trainable = False

    model = compiled(classifier(), plan())
    with pytest.raises(ValueError, match="trainable weights changed"):
        model.fit(*separable(), verbose=0, callbacks=[Freeze()])
    assert model.ledger.steps == 1


def test_a_custom_training_step_or_loss_method_is_rejected_by_name():
    class Own(keras.Model):
        def compute_loss(self, **kwargs):
            return 0.0

    with pytest.raises(ValueError, match="Own overrides compute_loss"):
        compiled(Own(), plan())


def test_a_plan_without_delta_and_numbers_that_contradict_the_plan_are_rejected():
    without = tfdp.PrivacyPlan(500, 50, STEPS, 1.0, noise_multiplier=1.0)
    for model, kwargs, message in (
        (compiled(classifier(), without), {}, "no delta"),
        (compiled(classifier(), plan()), {"delta": 1e-9}, "delta=1e-09"),
        (compiled(classifier(), plan()), {"num_examples": 10**6}, "num_examples=1000000"),
        (compiled(classifier(), plan()), {"epochs": 0}, "epochs must be .*, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(*separable(), verbose=0, **kwargs)
        assert model.ledger.steps == 0


def test_callbacks_that_steer_by_private_metrics_are_warned_of():
    model = compiled(classifier(), plan())
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=100)
    with pytest.warns(UserWarning, match="EarlyStopping controls training, .*by 'loss'"):
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


def test_without_noise_the_planned_steps_are_still_a_wall():
    """B15."""
    bare = plan(noise=0.0)
    other = Segment(StepSettings(500, 50, 1.0, 1.0), 3)
    assert bare.affordable_steps([other]) == 4
    assert bare.affordable_steps([other, Segment(bare.settings, 3)]) == 1
    assert bare.affordable_steps([other, Segment(bare.settings, 9)]) == 0
