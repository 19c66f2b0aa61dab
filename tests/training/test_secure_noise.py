"""The secure noise that fit really adds: on its grid, of its scale, and never twice.

Its key comes from entropy, so nothing is seeded here. A million coordinates put the standard error
of a deviation at 0.07 % and of a correlation at 0.1 %: false alarms are below 1e-40 and 1e-6.
"""

import math

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.privacy.grid import Grid
from tfdp.privacy.noise import NoiseKey

SIZE = 1000


def plan(rows=256, batch=64, steps=1, clip=2.0, noise=1.5):
    return tfdp.PrivacyPlan(
        rows, batch, steps, clip, noise_multiplier=noise, delta=1e-5, secure=True
    )


def noise_of_fit(steps=1, layers=1, **kwargs):
    """Weights after fit on zero gradients from zero weights: pure noise."""
    model = compiled(
        flat_model(SIZE, SIZE, layers), plan(steps=steps), loss=linear_sum, seed=None, **kwargs
    )
    model.fit(np.zeros((256, SIZE), "float32"), np.zeros(256, "float32"), verbose=0)
    return model.get_weights()


def correlation(a, b):
    return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_noise_lies_on_the_grid_and_has_the_planned_deviation():
    """B7."""
    (weights,) = noise_of_fit(microbatch_size=7)
    steps = weights.astype(float) * 64 / Grid.of(2.0, 1.5, SIZE**2).step
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert weights.std() == pytest.approx(1.5 * 2 / 64, rel=0.01)
    assert abs(weights.mean()) < 5.2 * 0.046875 / SIZE


def test_gradients_of_any_kind_leave_the_grid_unchanged():
    """B7."""
    features, labels = separable()
    p = tfdp.PrivacyPlan(500, 64, 1, 0.3, noise_multiplier=1.1, delta=1e-5, secure=True)
    model = compiled(classifier(), p, seed=None)
    before = model.get_weights()
    model.set_weights([np.zeros_like(w) for w in before])
    model.fit(features, labels, verbose=0)
    grid = Grid.of(0.3, 1.1, sum(w.size for w in before))
    for weights in model.get_weights():
        steps = weights.astype(float) * 64 / grid.step
        np.testing.assert_array_equal(steps, np.rint(steps))


def test_noise_is_independent_across_weights_steps_and_runs():
    (first, second), (one,) = noise_of_fit(layers=2), noise_of_fit()
    tracked = []

    class Track(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            tracked.append(self.model.get_weights()[0].copy())

    model = compiled(flat_model(SIZE, SIZE), plan(steps=2), loss=linear_sum, seed=None)
    model.fit(np.zeros((256, SIZE)), np.zeros(256), verbose=0, callbacks=[Track()])
    early, late = tracked[0], tracked[1] - tracked[0]
    for a, b in ((first, second), (early, late), (one, early), (one, first)):
        assert correlation(a, b) < 5.2e-3


def test_clipped_gradients_are_what_the_noise_is_added_to():
    """Every example moves the one weight by 2, clipped to 1: 300 of 300 are 1 +- the noise."""
    p = tfdp.PrivacyPlan(300, 300, 1, 1.0, noise_multiplier=0.01, delta=1e-5, secure=True)
    model = compiled(flat_model(1), p, loss=linear_sum, seed=None, microbatch_size=64)
    model.fit(np.full((300, 1), 2.0, "float32"), np.zeros(300, "float32"), verbose=0)
    assert model.get_weights()[0][0, 0] == pytest.approx(-1.0, abs=6 * 0.01 / 300)


def test_report_plan_and_saved_model_say_so(tmp_path):
    features, labels = separable()
    p = tfdp.PrivacyPlan(500, 50, 3, 1.0, noise_multiplier=1.0, delta=1e-5, secure=True)
    model = compiled(classifier(), p, seed=None)
    model.fit(features, labels, verbose=0)
    report = model.privacy_report()
    assert "discrete Gaussian" in report["noise_mechanism"]
    assert report["epsilon"] == p.epsilon > plan_without(p).epsilon
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.privacy == p and loaded.optimizer.ledger.segments()[0].settings.secure


def plan_without(p):
    return tfdp.PrivacyPlan.from_dict({**p.to_dict(), "secure": False})


def test_a_seed_is_rejected_and_no_two_keys_begin_alike():
    """B8."""
    with pytest.raises(ValueError, match="seed=7: a plan with secure=True"):
        compiled(classifier(), plan(), seed=7)
    assert len({NoiseKey.from_entropy().secret[:16] for _ in range(1000)}) == 1000


def test_noise_too_small_for_the_grid_is_rejected_before_the_first_step():
    features, labels = separable()
    p = tfdp.PrivacyPlan(500, 50, 3, 1.0, noise_multiplier=1e-6, delta=1e-5, secure=True)
    model = compiled(classifier(), p, seed=None)
    with pytest.raises(ValueError, match="noise_multiplier 1e-06"):
        model.fit(features, labels, verbose=0)
    assert model.ledger.steps == 0


@pytest.mark.parametrize("devices", [2])
def test_several_devices_draw_the_same_noise_once(run_in_fork, devices):
    printed = run_in_fork(
        """
        import numpy as np
        import tfdp
        from tests.training.models import compiled, flat_model, linear_sum
        plan = tfdp.PrivacyPlan(256, 64, 1, 2.0, noise_multiplier=1.5, delta=1e-5, secure=True)
        strategy = tfdp.choose_strategy("mirrored")
        with strategy.scope():
            model = compiled(flat_model(1000, 1000), plan, loss=linear_sum, seed=None)
        model.fit(np.zeros((256, 1000), "float32"), np.zeros(256, "float32"), verbose=0)
        copies = strategy.experimental_local_results(model.trainable_variables[0].value)
        first, second = (copy.numpy() for copy in copies)
        print(len(copies), np.abs(first - second).max(), first.std())
        """,
        devices=devices,
    )
    replicas, spread, deviation = map(float, printed.split()[-3:])
    assert (replicas, spread) == (2, 0)
    assert deviation == pytest.approx(1.5 * 2 / 64, rel=0.01)
    assert math.isfinite(deviation)
