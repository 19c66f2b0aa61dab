"""Keras habits on a private model, and what fit refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.export import read_report
from tfdp.privacy import verify

PLAN = {"num_examples": 500, "batch_size": 50, "clip_norm": 1.0, "noise_multiplier": 0.5}


def fitted(steps=20, **kwargs):
    plan = tfdp.PrivacyPlan(**PLAN, steps=steps, delta=1e-5)
    model = compiled(classifier(), plan, tfdp.optimizers.DPSGD(0.5, privacy=plan), **kwargs)
    features, labels = separable()
    return model, model.fit(features, labels, verbose=0)


def test_a_private_model_learns_and_keras_sees_epochs_losses_metrics_and_epsilon():
    model, history = fitted(steps=25, metrics=["accuracy"])
    assert history.epoch == [0, 1, 2]  # 10, 10 and 5 steps
    assert history.history["accuracy"][-1] > 0.85
    epsilons = history.history["epsilon"]
    assert epsilons == sorted(epsilons) and np.isfinite(epsilons).all()
    assert model.evaluate(*separable(seed=1), verbose=0, return_dict=True)["accuracy"] > 0.85
    assert model.predict(separable(seed=1)[0], verbose=0).shape == (500, 2)


def test_steps_per_execution_counts_every_step_once():
    model, history = fitted(steps=25, steps_per_execution=4)
    assert model.ledger.steps == 25
    assert int(model.optimizer.iterations.numpy()) == 25
    plain, _ = fitted(steps=25)
    for a, b in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dicts_tuples_weights_and_indexables_are_sampled_alike():
    """E6."""
    features, labels = separable()
    by_name = keras.Input((10,), name="features")
    outputs = []
    for x in ({"features": features}, features):
        keras.utils.set_random_seed(5)
        outputs_of = keras.layers.Dense(2, kernel_initializer="zeros")
        inputs = {"features": by_name} if isinstance(x, dict) else by_name
        model = keras.Model(inputs, outputs_of(by_name))
        plan = tfdp.PrivacyPlan(**PLAN, steps=5, delta=1e-5)
        model = compiled(model, plan)
        model.fit(x, labels, sample_weight=np.ones(500), verbose=0)
        outputs.append(model.get_weights()[0])
    np.testing.assert_allclose(*outputs, atol=1e-7)


def test_sample_weights_apply_before_clipping_and_class_weights_are_sample_weights():
    features, labels = separable()
    results = []
    for kwargs in (
        {"class_weight": {0: 0.0, 1: 0.3}},
        {"sample_weight": np.where(labels == 1, 0.3, 0.0)},
    ):
        plan = tfdp.PrivacyPlan(**PLAN, steps=5, delta=1e-5)
        model = compiled(classifier(), plan)
        model.fit(features, labels, verbose=0, **kwargs)
        results.append(model.get_weights()[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"validation_split": 0.1}, ValueError, "validation_split=0.1"),
        ({"batch_size": 32}, ValueError, "batch_size=32"),
        ({"epochs": 3}, ValueError, "at most 2 epochs"),
        ({"class_weight": {0: 1.0}}, ValueError, "classes"),
    ],
)
def test_arguments_that_break_the_plan_are_rejected_before_the_first_step(kwargs, error, message):
    """C12."""
    plan = tfdp.PrivacyPlan(**PLAN, steps=20, delta=1e-5)
    model = compiled(classifier(), plan)
    with pytest.raises(error, match=message):
        model.fit(*separable(), verbose=0, **kwargs)
    assert model.ledger.steps == 0


def test_streams_are_rejected_and_the_error_says_what_to_use():
    """E6."""
    plan = tfdp.PrivacyPlan(**PLAN, steps=20, delta=1e-5)
    model = compiled(classifier(), plan)
    stream = tf.data.Dataset.from_tensor_slices(separable()).batch(50)
    with pytest.raises(TypeError, match="random access"):
        model.fit(stream, verbose=0)


def test_freezing_after_compile_is_rejected_until_compiled_again():
    """K10."""
    plan = tfdp.PrivacyPlan(**PLAN, steps=20, delta=1e-5)
    model = compiled(classifier(), plan)
    model.layers[1].trainable = False
    with pytest.raises(ValueError, match="Compile again"):
        model.fit(*separable(), verbose=0)
    model = compiled(model, plan)
    frozen = [np.copy(w) for w in model.layers[1].get_weights()]
    model.fit(*separable(), verbose=0)
    for before, after in zip(frozen, model.layers[1].get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("optimizer", ["sgd", keras.optimizers.Adam(), None])
def test_an_optimizer_that_is_not_private_is_rejected(optimizer):
    model = tfdp.make_private(classifier())
    with pytest.raises(TypeError, match="tfdp.optimizers"):
        model.compile(optimizer, "mse")


def test_a_loss_scaling_wrapper_is_rejected():
    """B5."""
    inner = tfdp.optimizers.DPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0)
    model = tfdp.make_private(classifier())
    with pytest.raises(TypeError, match="Do not wrap"):
        model.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")


def test_without_a_plan_fit_asks_for_public_numbers_and_makes_one():
    optimizer = tfdp.optimizers.DPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0)
    model = compiled(classifier(), None, optimizer)
    with pytest.raises(ValueError, match="num_examples and batch_size and epochs and delta"):
        model.fit(*separable(), verbose=0)
    model.fit(*separable(), batch_size=50, epochs=2, num_examples=500, delta=1e-5, verbose=0)
    assert model.ledger.steps == 20
    assert model.privacy.noise_multiplier == 1.0


def test_without_a_plan_another_fit_may_have_other_numbers_and_counts_on():
    """At no noise and all examples: the divisor is that of the fit, not of the one before."""
    features, labels = np.ones((40, 1), "float32"), np.zeros(40, "float32")
    optimizer = tfdp.optimizers.DPSGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0)
    model = compiled(flat_model(1), None, optimizer, loss=linear_sum)
    settings = {"num_examples": 80, "delta": 1e-5, "epochs": 1, "steps_per_epoch": 1, "verbose": 0}
    moved = []
    for batch in (80, 40):
        with pytest.warns(UserWarning, match="num_examples"):
            model.fit(features, labels, batch_size=batch, **settings)
        moved.append(model.get_weights()[0][0, 0])
    assert moved[0] == pytest.approx(-0.5)
    drawn = (moved[0] - moved[1]) * 40
    assert drawn == pytest.approx(round(drawn), abs=1e-4) and 5 < drawn < 35
    assert [segment.settings.batch_size for segment in model.ledger.segments()] == [80, 40]


def test_compiling_again_does_not_forget_what_was_spent():
    model, _ = fitted(steps=10)
    plan = tfdp.PrivacyPlan(**{**PLAN, "noise_multiplier": 0.75}, steps=10, delta=1e-5)
    model.compile(
        tfdp.optimizers.DPSGD(0.5, privacy=plan),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    assert model.ledger.steps == 10
    spent = model.privacy_report().to_dict()["epsilon"]
    assert spent == pytest.approx(tfdp.PrivacyPlan(**PLAN, steps=10, delta=1e-5).epsilon, rel=1e-6)


def test_train_on_batch_and_uncompiled_models_explain_themselves():
    model, _ = fitted(steps=1)
    with pytest.raises(ValueError, match="fit"):
        model.train_on_batch(*separable())
    with pytest.raises(ValueError, match="compile"):
        tfdp.make_private(classifier()).fit(*separable())
    with pytest.raises(TypeError, match="keras.Model"):
        tfdp.make_private("model")


def test_dpmodel_is_built_like_a_functional_model_and_by_subclassing():
    inputs = keras.Input((10,))
    model = tfdp.DPModel(inputs, keras.layers.Dense(2)(inputs))
    assert isinstance(model, tfdp.DPModel) and isinstance(model, keras.Model)
    assert len(model.trainable_variables) == 2

    class Subclassed(tfdp.DPModel, keras.Model):
        def __init__(self):
            super().__init__()
            self.head = keras.layers.Dense(2)

        def call(self, x):
            return self.head(x)

    plan = tfdp.PrivacyPlan(**PLAN, steps=5, delta=1e-5)
    model = compiled(Subclassed(), plan, tfdp.optimizers.DPSGD(0.5, privacy=plan))
    history = model.fit(*separable(), verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_save_keeps_the_plain_model_and_weights(tmp_path):
    model, _ = fitted(steps=3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert not isinstance(loaded, tfdp.DPModel)
    features = separable()[0]
    np.testing.assert_allclose(
        loaded.predict(features, verbose=0), model.predict(features, verbose=0), atol=1e-6
    )


def test_export_serves_what_predict_gives(tmp_path):
    model, _ = fitted(steps=3)
    model.export(tmp_path / "served", verbose=False)
    features = separable()[0]
    bundle = tf.saved_model.load(tmp_path / "served")
    predicted = model.predict(features, verbose=0)
    np.testing.assert_allclose(bundle.serve(features), predicted, atol=1e-5)


def test_export_carries_report_and_ledger_and_needs_no_tfdp(tmp_path, run_in_subprocess):
    model, _ = fitted(steps=3)
    served = tmp_path / "served"
    model.export(served, verbose=False)
    report = read_report(served)
    assert report["epsilon"] == model.privacy_report().epsilon
    assert "counts" not in report and report["steps"] == 3
    assert verify(served / "assets").agrees
    assert "Counts" not in (served / "assets" / "privacy_report.html").read_text()
    assert sorted(file.name for file in (served / "assets").iterdir()) == [
        "ledger.jsonl", "privacy_report.html", "privacy_report.json",
    ]  # fmt: skip
    code = f"""
        import sys
        import tensorflow as tf
        bundle = tf.saved_model.load({str(served)!r})
        print(bundle.serve(tf.zeros([2, 10])).shape)
        print([name for name in sys.modules if name.startswith("tfdp")])
        """
    assert run_in_subprocess(code).split("\n")[:2] == ["(2, 2)", "[]"]


def test_export_leaves_no_report_of_an_earlier_model(tmp_path):
    model, _ = fitted(steps=3)
    model.export(tmp_path / "served", verbose=False)
    bare = compiled(
        classifier(), None, tfdp.optimizers.DPSGD(1.0, l2_norm_clip=1.0, noise_multiplier=1.0)
    )
    bare.export(tmp_path / "served", verbose=False)
    assert [file.name for file in (tmp_path / "served" / "assets").iterdir()] == ["ledger.jsonl"]
    plain = tfdp.make_private(classifier())
    plain.export(tmp_path / "plain", verbose=False)
    assert list((tmp_path / "plain" / "assets").iterdir()) == []


def test_several_outputs_losses_and_weight_regularizers_train():
    inputs = keras.Input((10,))
    hidden = keras.layers.Dense(8, kernel_regularizer="l2")(inputs)
    model = keras.Model(
        inputs, {"a": keras.layers.Dense(2, name="a")(hidden), "b": keras.layers.Dense(1)(hidden)}
    )
    plan = tfdp.PrivacyPlan(**PLAN, steps=20, delta=1e-5)
    losses = {"a": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "b": "mse"}
    model = compiled(model, plan, tfdp.optimizers.DPSGD(0.1, privacy=plan), losses)
    features, labels = separable()
    history = model.fit(features, {"a": labels, "b": features[:, 1]}, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
