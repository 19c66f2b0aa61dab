"""What one step may contain: the clip, the divisor, the mask, and the count."""

from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.data import IndexableSource
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import PoissonSampler


def plan_of(rows, batch, steps, clip=1.0, noise=0.0):
    return tfdp.PrivacyPlan(rows, batch, steps, clip, noise_multiplier=noise, delta=1e-5)


def movement(clip=1.0, rate=1.0, rows=500, batch=500, steps=1, **kwargs):
    features, labels = separable(rows)
    plan = plan_of(rows, batch, steps, clip)
    model = compiled(classifier(), plan, tfdp.optimizers.DPSGD(rate, privacy=plan), **kwargs)
    before = model.get_weights()
    model.fit(features, labels, verbose=0)
    return np.concatenate(
        [(b - a).ravel() for a, b in zip(before, model.get_weights(), strict=True)]
    )


def test_weights_move_by_at_most_the_clip_norm_per_step():
    """A1."""
    moved = np.linalg.norm(movement(clip=1e-3))
    assert 1e-4 < moved <= 1e-3 * (1 + 1e-6)


def test_the_clip_norm_scales_the_step():
    """A2, A4."""
    moved = []
    for clip in (0.1, 1.0):  # all gradient norms are far above
        model = compiled(flat_model(10, 4), plan_of(500, 500, 1, clip), loss=linear_sum)
        model.fit(100 * separable()[0], np.zeros(500), verbose=0)
        moved.append(model.get_weights()[0])
    np.testing.assert_allclose(10 * moved[0], moved[1], rtol=1e-5, atol=1e-7)


def test_the_learning_rate_scales_the_step():
    """A4."""
    np.testing.assert_allclose(movement(rate=0.5) * 2, movement(rate=1.0), rtol=1e-3, atol=1e-6)


def test_every_engine_gives_the_same_weights():
    """A4, A10."""
    single, vectorized = (
        movement(clip=0.5, batch=50, steps=20, engine=engine)
        for engine in ("single_pass", "vectorized")
    )
    np.testing.assert_allclose(single, vectorized, atol=1e-5)


@pytest.fixture(scope="module")
def whole():
    """A run whose batches fit into one microbatch."""
    return movement(rows=40, batch=8, steps=3, microbatch_size=64)


@pytest.mark.parametrize("microbatch_size", [1, 3, 16, 500])
def test_microbatches_and_padding_change_nothing(microbatch_size, whole):
    """A9, A24, A29."""
    parts = movement(rows=40, batch=8, steps=3, microbatch_size=microbatch_size)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_overwhelming_noise_leaves_chance():
    """A2, A3."""
    features, labels = separable(2000)
    accuracies = []
    for seed in range(5):
        plan = plan_of(2000, 200, 30, noise=1000.0)
        model = compiled(classifier(), plan, seed=seed, metrics=["accuracy"])
        model.fit(features, labels, verbose=0)
        accuracies.append(model.evaluate(features, labels, verbose=0)[1])
    # A linear cut in a random direction: its accuracy is spread around one half.
    assert 0.2 < np.mean(accuracies) < 0.8


def sampled(seed, rows, probability, steps):
    key = NoiseKey.from_seed(seed).child("sampling").as_int()
    sampler = PoissonSampler(rows, probability, key)
    return [sampler.count(step) for step in range(steps)]


def test_the_divisor_is_the_expected_batch_whatever_was_drawn():
    """A12."""
    # Every example has gradient (2,): clipped to 1 it moves the weight by 1 / 16 a step.
    model, reached = compiled(flat_model(1), plan_of(64, 16, 3), loss=linear_sum), []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: reached.append(model.get_weights()[0].item())
    )
    x, y = np.full((64, 1), 2.0, "float32"), np.zeros(64, "float32")
    model.fit(x, y, steps_per_epoch=3, verbose=0, callbacks=[note])
    drawn = sampled(7, 64, 0.25, 3)
    assert len(set(drawn)) > 1
    assert reached == pytest.approx(-np.cumsum(drawn) / 16, rel=1e-6)


def test_neighbors_without_gradient_get_bit_equal_steps():
    """A11."""
    weights = []
    for rows in (2, 3):
        plan = plan_of(3, 1, 4, noise=1.0)
        model = compiled(flat_model(5), plan, loss=linear_sum)
        with pytest.warns(UserWarning, match="num_examples") if rows == 2 else nullcontext():
            model.fit(np.zeros((rows, 5), "float32"), np.zeros(rows), verbose=0)
        weights.append(model.get_weights()[0])
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("row", [3, 39])  # of the first and of the last microbatch
def test_padding_of_nan_is_harmless_and_non_finite_examples_are_counted(row):
    """A29."""
    features, labels = separable(40)
    features[row] = np.nan
    plan = plan_of(40, 40, 2)
    model = compiled(classifier(), plan, microbatch_size=16)
    history = model.fit(features, labels, verbose=0)
    clean = compiled(classifier(), plan, microbatch_size=16)
    keep = np.arange(40) != row
    with pytest.warns(UserWarning, match="num_examples"):
        clean.fit(features[keep], labels[keep], verbose=0)
    for ours, theirs in zip(model.get_weights(), clean.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert np.isfinite(history.history["loss"][0])
    assert model.privacy_report().to_dict()["counts"]["non_finite_examples"] == 2
    assert model.ledger.steps == 2


def test_examples_that_cannot_be_read_contribute_nothing():
    """They come as zeros, which would move the biases."""
    features, labels = separable(40)
    readable = np.arange(40) % 4 > 0
    examples = [(features[i] if readable[i] else features[i, :3], labels[i]) for i in range(40)]
    spec = (tf.TensorSpec([10]), tf.TensorSpec([], tf.int32))
    model, clean = (compiled(classifier(), plan_of(40, 40, 2)) for _ in range(2))
    model.fit(IndexableSource(examples, element_spec=spec), verbose=0)
    with pytest.warns(UserWarning, match="num_examples"):
        clean.fit(features[readable], labels[readable], verbose=0)
    for ours, theirs in zip(model.get_weights(), clean.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert model.privacy_report()["counts"]["examples_used"] == 2 * 30


def test_empty_batches_are_steps_of_noise_alone_and_one_trace_serves_all_sizes():
    """E1, C9, D9, H8."""
    plan = plan_of(100, 3, 300, noise=1.0)
    model = compiled(flat_model(4), plan, loss=linear_sum, microbatch_size=4)
    tracked = []

    class Track(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            tracked.append((self.model.get_weights()[0].copy(), logs["loss"]))

    zeros = np.zeros((100, 4), "float32")
    model.fit(zeros, zeros[:, 0], verbose=0, callbacks=[Track()])
    drawn = sampled(7, 100, 0.03, 300)
    # 0.97^100 = 4.755 % of 300 steps: 14.3; the seed is fixed, so the count is too.
    assert 3 <= drawn.count(0) <= 30
    assert max(drawn) > 4  # more than one microbatch
    assert model.ledger.steps == 300
    moves = [np.abs(b[0] - a[0]).min() for a, b in zip(tracked, tracked[1:], strict=False)]
    assert min(moves) > 0  # every step moved every weight
    assert all(np.isfinite(loss) for _, loss in tracked)
    step = model._run.step
    assert step._accumulate.experimental_get_tracing_count() == 1
    assert step._release.experimental_get_tracing_count() == 1
    traces = [f.experimental_get_tracing_count() for f in step.clipped._functions.values()]
    assert sum(traces) == 1


def test_a_batch_larger_than_the_microbatch_is_split_and_nothing_is_dropped():
    """E2."""
    plan = plan_of(300, 300, 1)
    model = compiled(flat_model(1), plan, loss=linear_sum, microbatch_size=64)
    model.fit(np.full((300, 1), 2.0, "float32"), np.zeros(300, "float32"), verbose=0)
    assert model.get_weights()[0][0, 0] == pytest.approx(-1.0, rel=1e-6)  # 300 / 300
    assert model._private.progress.counts()["examples_used"] == 300
    assert model.ledger.steps == 1


def test_batch_normalization_is_rejected_by_name_unless_it_is_frozen():
    """A26."""
    features, labels = separable(64)
    inputs = keras.Input((10,))
    norm = keras.layers.BatchNormalization(name="the_norm")
    head = keras.layers.Dense(2)(norm(inputs))
    plan = plan_of(64, 16, 2, noise=1.0)
    model = compiled(keras.Model(inputs, head), plan)
    with pytest.raises(ValueError, match="the_norm"):
        model.fit(features, labels, verbose=0)
    assert model.ledger.steps == 0
    norm.trainable = False
    model = compiled(model, plan)
    before = [np.copy(w) for w in norm.get_weights()]
    model.fit(features, labels, verbose=0)
    for old, new in zip(before, norm.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_report_after_all_steps_meets_the_target():
    """A5."""
    features, labels = separable(500)
    plan = tfdp.PrivacyPlan(500, 50, 20, 1.0, epsilon=4.0, delta=1e-4)
    loose = tfdp.PrivacyPlan(500, 50, 20, 1.0, epsilon=100.0, delta=1e-4)
    assert plan.noise_multiplier > loose.noise_multiplier
    model = compiled(classifier(), plan)
    history = model.fit(features, labels, verbose=0)
    report = model.privacy_report().to_dict()
    assert 3.9 <= report["epsilon"] <= 4.0
    assert history.history["epsilon"][-1] == pytest.approx(report["epsilon"])
    assert report["noise_multiplier"] == model.noise_multiplier
    assert report["steps"] == 20


def test_a_step_beyond_the_plan_is_rejected_whatever_the_microbatches():
    """G1, B15."""
    features, labels = separable(500)
    for microbatch_size in (64, 16):
        plan = tfdp.PrivacyPlan(500, 64, 42, 1.0, noise_multiplier=1.0, delta=1e-4)
        model = compiled(classifier(), plan, microbatch_size=microbatch_size)
        with pytest.raises(ValueError, match="43"):
            model.fit(features, labels, epochs=1, steps_per_epoch=43, verbose=0)
        assert model.ledger.steps == 0
        model.fit(features, labels, epochs=1, steps_per_epoch=42, verbose=0)
        assert model.ledger.steps == 42
        with pytest.raises(ValueError, match="plan allows 42 steps.* spent all of it"):
            model.fit(features, labels, verbose=0)


def test_epsilon_does_not_depend_on_clip_rate_or_optimizer():
    """G9, G16."""
    features, labels = separable(200)
    epsilons = set()
    for optimizer, clip, rate in (
        (tfdp.optimizers.DPSGD, 1.0, 0.1),
        (tfdp.optimizers.DPLAMB, 0.1, 0.01),
        (tfdp.optimizers.DPAdamW, 7.0, 1e-3),
    ):
        plan = plan_of(200, 20, 5, clip=clip, noise=1.1)
        model = compiled(classifier(), plan, optimizer(rate, privacy=plan))
        model.fit(features, labels, verbose=0)
        epsilons.add(model.privacy_report().to_dict()["epsilon"])
    assert len(epsilons) == 1
