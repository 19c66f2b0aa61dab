"""What Keras users do around fit: schedules, epochs, logs, saving; none of it costs privacy."""

import keras
import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, separable
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import PoissonSampler


def plan(steps=6, batch=50, noise=1.0):
    settings = {"noise_multiplier": noise, "delta": 1e-5, "accountant": "rdp"}
    return tfdp.PrivacyPlan(500, batch, steps, 1.0, **settings)


def fitted(rate=0.1, callbacks=(), **kwargs):
    model = compiled(classifier(), plan(), tfdp.optimizers.DPAdam(rate, privacy=plan()))
    history = model.fit(*separable(), verbose=0, callbacks=list(callbacks), **kwargs)
    return model, history.history


class Rates(keras.callbacks.Callback):
    """The learning rate after every step."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def test_learning_rate_schedules_work_and_spend_nothing():
    """J2."""
    constant, _ = fitted()
    epsilon = constant.privacy_report()["epsilon"]
    warm, rates = tfdp.optimizers.warmup_cosine(0.4, 2, 6), Rates()
    model, _ = fitted(warm, [rates])
    assert rates.seen == pytest.approx([float(warm(step)) for step in range(1, 7)])
    assert model.privacy_report()["epsilon"] == epsilon

    rates = Rates()
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    model, _ = fitted(0.4, [halve, rates], epochs=3, steps_per_epoch=2)
    assert rates.seen == pytest.approx([0.2, 0.2, 0.1, 0.1, 0.05, 0.05])
    assert model.privacy_report()["epsilon"] == epsilon

    rates = Rates()
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.1, patience=0, mode="max")
    with pytest.warns(UserWarning, match="ReduceLROnPlateau controls training, .*by 'loss'"):
        model, _ = fitted(0.1, [plateau, rates], epochs=3, steps_per_epoch=2)
    assert rates.seen[-1] < rates.seen[0]
    assert model.privacy_report()["epsilon"] == epsilon


def test_every_epoch_logs_an_epsilon_that_the_accountant_gives():
    """F10."""
    model, history = fitted(epochs=3, steps_per_epoch=2)
    expected = [plan().epsilon_after(steps) for steps in (2, 4, 6)]
    assert history["epsilon"] == pytest.approx(expected)
    assert model.privacy_report()["epsilon"] == pytest.approx(expected[-1])


def test_a_step_uses_exactly_its_own_draw_and_epochs_leave_nothing_over():
    """A21."""
    key = NoiseKey.from_seed(7).child("sampling").as_int()
    drawn = [PoissonSampler(500, 0.1, key).count(step) for step in range(6)]
    weights = []
    for epochs, microbatch_size in ((1, 64), (3, 64), (2, 7)):
        model = compiled(classifier(), plan(noise=0.0), microbatch_size=microbatch_size)
        model.fit(*separable(), epochs=epochs, steps_per_epoch=6 // epochs, verbose=0)
        assert model.privacy_report()["counts"]["examples_used"] == sum(drawn)
        weights.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    np.testing.assert_allclose(weights[2], weights[0], atol=1e-6)


def test_the_calibrated_noise_is_visible_and_equals_the_reports():
    """C13."""
    calibrated = tfdp.PrivacyPlan(500, 50, 6, 1.0, epsilon=2.0, delta=1e-5)
    model = compiled(classifier(), calibrated)
    assert isinstance(model.noise_multiplier, float)
    assert model.noise_multiplier == model.optimizer.noise_multiplier > 0.5
    assert model.noise_multiplier == model.privacy_report()["noise_multiplier"]


def test_a_saved_model_is_used_without_tfdp_and_trained_on_with_it_in_a_fresh_process(
    tmp_path, run_in_subprocess
):
    """F5."""
    model, _ = fitted()
    model.save(tmp_path / "model.keras")
    features = separable()[0][:5]
    np.save(tmp_path / "expected.npy", model.predict(features, verbose=0))
    printed = run_in_subprocess(
        f"""
        import sys
        import keras, numpy as np
        folder = {str(tmp_path)!r}
        features = np.random.default_rng(0).normal(size=(500, 10)).astype("float32")
        plain = keras.models.load_model(folder + "/model.keras", compile=False)
        expected = np.load(folder + "/expected.npy")
        np.testing.assert_allclose(plain.predict(features[:5], verbose=0), expected, atol=1e-6)
        assert "tfdp" not in sys.modules

        import tfdp
        from tests.training.models import compiled, separable
        plan = tfdp.PrivacyPlan(
            500, 50, 8, 1.0, noise_multiplier=1.0, delta=1e-5, accountant="rdp"
        )
        model = compiled(keras.models.load_model(folder + "/model.keras"), plan)
        model.fit(*separable(), verbose=0)
        print(model.ledger.steps, int(model.optimizer.iterations.numpy()))
        """
    )
    assert printed.split() == ["8", "2"]


def test_private_logistic_regression_does_what_a_reference_in_numpy_does():
    """B14."""
    features, labels = separable()
    signs = 2.0 * labels - 1
    steps, rate, clip, noise, batch = 60, 0.5, 1.0, 0.5, 50
    rng = np.random.default_rng(1)

    def mean_loss(w):
        return np.mean(np.log1p(np.exp(-signs * (features @ w))))

    references = []
    for _ in range(20):
        w = np.zeros(10)
        for _ in range(steps):
            drawn = rng.random(500) < batch / 500
            x, s = features[drawn], signs[drawn]
            gradients = (-s / (1 + np.exp(s * (x @ w))))[:, None] * x
            norms = np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), clip)
            noised = (gradients * clip / norms).sum(0) + noise * clip * rng.normal(size=10)
            w -= rate * noised / batch
        references.append(mean_loss(w))

    inputs = keras.Input((10,))
    output = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs)
    private = tfdp.PrivacyPlan(
        500, batch, steps, clip, noise_multiplier=noise, delta=1e-5, accountant="rdp"
    )
    model = compiled(
        keras.Model(inputs, output),
        private,
        tfdp.optimizers.DPSGD(rate, privacy=private),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(features, labels[:, None].astype("float32"), verbose=0)
    final = mean_loss(model.get_weights()[0][:, 0].astype(float))
    assert final < np.log(2) - 0.2
    spread = np.std(references)
    # Six deviations of runs with other noise and other draws: a false alarm below 1e-8.
    assert abs(final - np.mean(references)) < 6 * spread


def test_constraints_act_on_weights_after_the_noisy_step():
    bounded = {"kernel_constraint": keras.constraints.MaxNorm(0.5)}
    net = keras.Sequential([keras.Input((10,)), keras.layers.Dense(2, **bounded)])
    model = compiled(net, plan())
    model.fit(*separable(), verbose=0)
    kernel, _ = model.get_weights()
    norms = np.linalg.norm(kernel, axis=0)
    np.testing.assert_allclose(norms, np.minimum(norms, 0.5), rtol=1e-5)
    assert norms.max() == pytest.approx(0.5, rel=1e-4)
