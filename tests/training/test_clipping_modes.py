"""Every way of clipping that a plan can ask for, through fit: bounds, noise, state, report."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.privacy import AutomaticClipping, QuantileClipping
from tfdp.training import CheckpointEvery

ROWS, SIZE = 64, 1000


def plan(clip_norm=1.0, steps=1, noise=0.0, examples=ROWS, batch=ROWS, **options):
    return tfdp.PrivacyPlan(
        examples, batch, steps, clip_norm, noise_multiplier=noise, delta=1e-5, **options
    )


def named():
    keras.utils.set_random_seed(5)
    features = keras.Input((10,))
    hidden = keras.layers.Dense(16, "relu", name="first")(features)
    return keras.Model(features, keras.layers.Dense(2, name="second")(hidden))


def per_example_gradients(model, features, labels):
    """By a plain loop; the loss is that of ``compiled``."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = []
    for i in range(len(features)):
        with tf.GradientTape() as tape:
            value = loss(labels[i : i + 1], model(features[i : i + 1]))
        found.append(tape.gradient(value, [v.value for v in model.trainable_variables]))
    return [np.stack(g) for g in zip(*found, strict=True)]


def one_step(way, **options):
    """Gradients of all examples, and what a full-batch step of rate 1 without noise subtracts."""
    features, labels = separable(ROWS)
    features *= 3
    model = named()
    before, gradients = model.get_weights(), per_example_gradients(model, features, labels)
    made = plan(clipping=way, **options) if way else plan(**options)
    model = compiled(model, made)
    model.fit(features, labels, verbose=0)
    moved = [a - b for a, b in zip(before, model.get_weights(), strict=True)]
    return model, gradients, moved


def norms_of(gradients):
    return np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(1) for g in gradients))


def assert_moved(moved, gradients, factors):
    for step, g, own in zip(moved, gradients, factors, strict=True):
        expected = np.tensordot(own, g, 1) / ROWS
        np.testing.assert_allclose(step, expected, rtol=1e-4, atol=1e-6)


def test_automatic_clipping_normalizes_every_example():
    _, gradients, moved = one_step(AutomaticClipping(gamma=0.1), clip_norm=0.5)
    factors = 0.5 / (norms_of(gradients) + 0.1)
    assert_moved(moved, gradients, [factors] * len(gradients))


def test_per_layer_clipping_bounds_every_layer_apart():
    _, gradients, moved = one_step(None, clip_norm={"first": 0.03, "second": 0.04})
    factors = []
    for part, bound in ((gradients[:2], 0.03), (gradients[2:], 0.04)):
        factors += [bound / np.maximum(norms_of(part), bound)] * 2
    assert_moved(moved, gradients, factors)
    assert np.sqrt(sum((step**2).sum() for step in moved)) <= 0.05 + 1e-6


def test_a_clip_norm_that_follows_a_quantile_moves_by_the_share_of_unclipped_examples():
    """Without noise: C * exp(-rate * (share - quantile)), and clipping at C before it moves."""
    start = 1.0
    model, gradients, moved = one_step(QuantileClipping(0.3, learning_rate=0.5), clip_norm=start)
    norms = norms_of(gradients)
    assert_moved(moved, gradients, [start / np.maximum(norms, start)] * len(gradients))
    expected = start * np.exp(-0.5 * ((norms <= start).mean() - 0.3))
    assert 0 < (norms <= start).mean() < 1
    assert float(model.optimizer.adaptive_clip_norm) == pytest.approx(expected, rel=1e-5)


def test_the_clip_norm_finds_the_quantile_and_bounds_what_comes_after():
    features, labels = separable(ROWS)
    model = compiled(
        classifier(),
        plan(50.0, steps=200, clipping=QuantileClipping(0.5, 0.3)),
        tfdp.optimizers.DPSGD(1e-9, privacy=plan(50.0, 200, clipping=QuantileClipping(0.5, 0.3))),
    )
    median = np.median(norms_of(per_example_gradients(model, features, labels)))
    model.fit(features, labels, verbose=0)
    assert float(model.optimizer.adaptive_clip_norm) == pytest.approx(median, rel=0.1)


def test_both_noises_are_those_that_the_report_states():
    """Zero gradients: the sum is noise of deviation z * C_t, and the count is noise too.

    A million coordinates put the standard error of a deviation at 0.07 %; the limit is 1 %.
    """
    way = QuantileClipping(0.5, learning_rate=1.0, count_noise=2.0)
    made = plan(2.0, steps=1, noise=1.5, clipping=way)
    model = compiled(
        flat_model(SIZE, SIZE), made, tfdp.optimizers.DPSGD(1.0, privacy=made), linear_sum
    )
    model.fit(np.zeros((ROWS, SIZE), "float32"), np.zeros(ROWS, "float32"), verbose=0)
    multiplier = (1.5**-2 - (2 * 2.0) ** -2) ** -0.5
    (weights,) = model.get_weights()
    assert weights.std() == pytest.approx(multiplier * 2.0 / ROWS, rel=0.01)
    report = model.privacy_report()
    assert report["gradient_noise_multiplier"] == pytest.approx(multiplier)
    assert report["count_noise_standard_deviation"] == 2.0
    # All are unclipped: the share is 1, and what is left of the move is the count's noise.
    noise = (-np.log(float(model.optimizer.adaptive_clip_norm) / 2.0) + 0.5 - 1.0) * ROWS
    assert 0 < abs(noise) < 6 * 2.0
    assert "the clip norm started at 2" in str(report["notes"])


def test_the_noise_on_the_count_has_its_deviation_and_is_new_in_every_step():
    """400 draws put the standard error of a deviation at 3.5 %: 20 % is beyond five of them."""
    way = QuantileClipping(0.5, learning_rate=1e-3, count_noise=5.0)
    made = plan(steps=400, noise=1.0, clipping=way)
    model = compiled(flat_model(1), made, tfdp.optimizers.DPSGD(0.0, privacy=made), linear_sum)

    class Trace(keras.callbacks.Callback):
        norms: list = []

        def on_train_batch_end(self, batch, logs=None):
            self.norms.append(logs["clip_norm"])

    model.fit(np.zeros((ROWS, 1)), np.zeros(ROWS), verbose=0, callbacks=[Trace()])
    moves = -np.diff(np.log([1.0, *Trace.norms])) / 1e-3 + 0.5 - 1.0
    assert len(set(np.round(moves, 4))) > 300
    assert moves.std() * ROWS == pytest.approx(5.0, rel=0.2)
    assert abs(moves.mean() * ROWS) < 5 * 5.0 / 20


@pytest.mark.parametrize("microbatch_size", [64, 16])
def test_microbatches_and_the_size_of_the_sample_change_nothing(microbatch_size):
    way = QuantileClipping(0.3, learning_rate=0.5)
    features, labels = separable(ROWS)
    model = compiled(classifier(), plan(steps=3, clipping=way), microbatch_size=microbatch_size)
    model.fit(features, labels, verbose=0)
    whole = compiled(classifier(), plan(steps=3, clipping=way), microbatch_size=128)
    whole.fit(features, labels, verbose=0)
    expected = float(whole.optimizer.adaptive_clip_norm)
    assert float(model.optimizer.adaptive_clip_norm) == pytest.approx(expected)
    for a, b in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def run(folder, stop):
    """Six seeded steps, of which the folder's checkpoint may hold some."""
    made = plan(steps=6, noise=1.0, clipping=QuantileClipping(0.3, 0.5))
    model = compiled(classifier(), made, seed=3)
    saver = CheckpointEvery(model, folder, seconds=1e9)
    saver.restore()

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = self.model.optimizer.iterations.numpy() >= stop

    model.fit(*separable(ROWS), verbose=0, callbacks=[Stop(), saver])
    return model


def test_a_run_goes_on_with_the_clip_norm_that_it_had_come_to(tmp_path):
    whole = run(tmp_path / "whole", 6)
    half = float(run(tmp_path / "parts", 3).optimizer.adaptive_clip_norm)
    parts = run(tmp_path / "parts", 6)
    assert half != 1.0 and half != float(parts.optimizer.adaptive_clip_norm)
    assert float(parts.optimizer.adaptive_clip_norm) == float(whole.optimizer.adaptive_clip_norm)
    for a, b in zip(parts.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_saved_model_keeps_plan_and_clip_norm(tmp_path):
    model = run(tmp_path / "run", 6)
    model.save(tmp_path / "model.keras")
    optimizer = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert optimizer.privacy == model.privacy
    assert float(optimizer.adaptive_clip_norm) == float(model.optimizer.adaptive_clip_norm)


def test_a_model_that_cannot_be_checked_on_synthetic_inputs_trains_with_public_examples():
    features = keras.Input((3,))
    shifted = keras.layers.Lambda(lambda x: keras.ops.log(x - 100), output_shape=(3,))(features)
    model = keras.Model(features, keras.layers.Dense(2)(shifted))
    x, y = 101 + np.random.default_rng(0).uniform(size=(ROWS, 3)), np.arange(ROWS) % 2
    with pytest.raises(ValueError, match="public_examples"):
        compiled(model, plan()).fit(x, y, verbose=0)
    compiled(model, plan(), public_examples=(200 + x[:2], y[:2])).fit(x, y, verbose=0)
    assert model.ledger.steps == 1


def test_the_optimizer_takes_the_plan_and_saves_it():
    optimizer = tfdp.optimizers.DPSGD(0.1, privacy=plan(noise=1.0, clipping=QuantileClipping(0.7)))
    again = tfdp.optimizers.DPSGD.from_config(optimizer.get_config())
    assert again.privacy == optimizer.privacy and float(again.adaptive_clip_norm) == 1.0
