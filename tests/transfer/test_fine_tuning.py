"""Training on sampled batches: heads of features, and parts of backbones."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.transfer.tables import clusters
from tfdp.transfer import as_table
from tfdp.transfer.backbones import Backbone, BackboneError
from tfdp.transfer.features import ArrayPictures
from tfdp.transfer.fine_tuning import (
    FineTune,
    Pictures,
    SampledHead,
    classifier,
    fit_sampled,
    plan_for,
    train_only,
)
from tfdp.transfer.studies import Budget, Candidate, tune
from tfdp.transfer.studies.candidates import make_method
from tfdp.transfer.studies.held_out import split

CLASSES, SIZE, COUNT = 3, 6, 120
BUDGET = {"num_examples": COUNT, "num_classes": CLASSES, "epsilon": 8.0, "delta": 1e-5}


def _network():
    """With one layer of every kind that a part is about."""
    keras.utils.set_random_seed(1)
    pictures = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(4, 3, name="first")(pictures)
    x = layers.BatchNormalization(name="batch_norm")(x)
    x = layers.GroupNormalization(2, name="group_norm")(x)
    x = layers.DepthwiseConv2D(2, name="depthwise", activation="relu")(x)
    x = layers.Conv2D(5, 2, name="second")(x)
    return keras.Model(pictures, layers.GlobalAveragePooling2D()(x), name="toy")


def _backbone():
    return Backbone("toy", _network(), lambda x: (x - 127.0) / 128.0, SIZE, {})


def _pictures(seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, COUNT)
    noise = generator.integers(0, 60, (COUNT, SIZE, SIZE, 3))
    pixels = (noise + 150 * np.eye(3)[labels][:, None, None]).astype(np.uint8)
    return Pictures(ArrayPictures("toy", "train", list("abc"), pixels, labels), SIZE)


def test_each_part_is_what_its_name_says():
    names = ("first", "group_norm", "depthwise", "second")
    kernels = {f"{name}/kernel" for name in names if name != "group_norm"}
    biases = {f"{name}/bias" for name in names if name != "group_norm"} | {"group_norm/beta"}
    norms = {"group_norm/gamma", "group_norm/beta"}

    def own(part, **settings):
        network = _network()
        train_only(network, part, **settings)
        return {variable.path for variable in network.trainable_variables}

    assert own("none") == set()
    assert own("bias") == biases
    assert own("norm") == norms
    assert own("last_block", layers=2) == {
        f"{name}/{kind}" for name in ("depthwise", "second") for kind in ("kernel", "bias")
    }
    assert own("lora", rank=2) == {
        f"{name}/lora_kernel_{kind}" for name in ("first", "second") for kind in "ab"
    }
    assert own("all") == kernels | biases | norms  # no statistics, no weights of batch_norm


def test_weights_of_a_layer_with_parts_are_frozen_and_found_too():
    """A vision transformer's class token belongs to a layer that has layers inside."""

    class Tokens(layers.Layer):
        def __init__(self):
            super().__init__(name="tokens")
            self.inner = layers.Dense(4, name="inner")

        def build(self, shape):
            self.token = self.add_weight(shape=(4,), name="class_token")
            self.inner.build(shape)

        def call(self, x):
            return self.inner(x) + self.token

    def own(part):
        network = keras.Sequential([keras.Input((4,)), Tokens(), layers.LayerNormalization()])
        train_only(network, part)
        return [variable.path.split("/")[-1] for variable in network.trainable_variables]

    assert own("norm") == ["gamma", "beta"]
    assert own("bias") == ["bias", "beta"]
    assert own("all") == ["class_token", "kernel", "bias", "gamma", "beta"]


def test_a_part_that_a_backbone_does_not_have_is_rejected():
    network = keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="plain")
    with pytest.raises(ValueError, match="'plain' has nothing to train for part='norm'"):
        train_only(network, "norm")
    with pytest.raises(ValueError, match="part must be one of none, bias"):
        train_only(network, "head")


def test_only_the_head_moves_over_a_frozen_backbone_with_batch_norm():
    """A27: pretrained batch normalization is not rejected where no gradient flows into it."""
    made = []

    def backbone():
        made.append(_backbone())
        return made[-1]

    settings = FineTune(
        part="none", backbone=backbone, batch_size=40, epochs=2, learning_rate=0.1, optimizer="sgd"
    )
    before = _network().get_weights()
    trained, seconds = fit_sampled(settings, _pictures(), **BUDGET, seed=1)
    for old, new in zip(before, made[0].network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    head = trained.model.get_layer("logits").get_weights()
    assert all(np.any(weights != 0) for weights in head) and seconds > 0
    report = trained.privacy_report()
    assert 7.9 < report["epsilon"] <= 8.0 and report["steps"] == 6


def test_biases_learn_with_lamb_and_kernels_stay():
    made = []

    def backbone():
        made.append(_backbone())
        return made[-1]

    settings = FineTune(part="bias", backbone=backbone, batch_size=60, epochs=8, learning_rate=0.5)
    pictures = _pictures()
    trained, _ = fit_sampled(settings, pictures, **BUDGET, seed=2)
    assert trained.evaluate(_pictures(1))["accuracy"] > 0.6
    network, fresh = made[0].network, _network()
    for name in ("first", "depthwise", "second"):
        kernel, bias = network.get_layer(name).get_weights()
        first_kernel, first_bias = fresh.get_layer(name).get_weights()
        np.testing.assert_array_equal(kernel, first_kernel)
        assert np.any(bias != first_bias)


def test_a_sampled_head_learns_and_skips_examples_that_are_not_finite():
    x, y = clusters(400, 8, CLASSES, seed=1)
    x[0] = np.nan
    budget = {**BUDGET, "num_examples": 400}
    settings = SampledHead(batch_size=100, epochs=5, learning_rate=0.5, optimizer="momentum")
    rows = as_table(x, y, CLASSES)
    trained, _ = fit_sampled(settings, rows, **budget, seed=1)
    assert trained.evaluate(as_table(*clusters(400, 8, CLASSES, seed=2), CLASSES))["accuracy"] > 0.9
    assert all(np.isfinite(weights).all() for weights in trained.model.get_weights())


def test_examples_that_cannot_be_read_count_as_wrong_answers():
    """A charged choice adds noise to numbers of right answers, which one example changes by 1."""

    class Broken(ArrayPictures):
        def picture(self, index):
            if index % 4:
                raise OSError("damaged")
            return super().picture(index)

    pixels = np.full((40, SIZE, SIZE, 3), 200, np.uint8)
    pictures = Pictures(Broken("t", "test", list("abc"), pixels, np.zeros(40, int)), SIZE)
    x = np.where(np.arange(40)[:, None] % 4, np.nan, np.ones((40, 4), np.float32))
    for settings, rows in (
        (FineTune(part="none", backbone=_backbone, init=0.0, batch_size=20), pictures),
        (SampledHead(batch_size=20, epochs=1), as_table(x, np.zeros(40, int), CLASSES)),
    ):
        trained, _ = fit_sampled(settings, rows, **{**BUDGET, "num_examples": 40}, seed=1)
        trained.model.get_layer("logits").bias.assign([9.0, 0.0, 0.0])
        assert trained.evaluate(rows)["accuracy"] == pytest.approx(10 / 40)


def test_the_functions_of_many_models_are_not_taken_for_one_that_is_traced_again(caplog):
    rows = as_table(*clusters(60, 4, CLASSES), CLASSES)
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    for seed in range(6):
        settings = SampledHead(batch_size=60, epochs=1)
        fit_sampled(settings, rows, **{**BUDGET, "num_examples": 60}, seed=seed)[0].evaluate(rows)
    logger.warning("other warnings pass")
    logger.removeHandler(caplog.handler)
    said = {record.getMessage() for record in caplog.records if record.name == "tensorflow"}
    assert said == {"other warnings pass"}


def test_many_runs_on_the_same_rows_share_one_table_and_one_split():
    rows = as_table(*clusters(60, 4, CLASSES), CLASSES)
    sources = [SampledHead().source(rows) for _ in range(2)]
    features = [source._data["x"] for source in sources]
    assert np.shares_memory(*features)
    assert split(rows, 0.2) is split(rows, 0.2) is not split(rows, 0.3)


def test_the_backbone_learns_at_a_part_of_the_head_s_rate_and_both_come_to_rest():
    settings = FineTune(learning_rate=0.2, backbone_rate=0.1, batch_size=40, epochs=2)
    optimizer = settings.make_optimizer(plan_for(settings, COUNT, 8.0, 1e-5))
    assert optimizer.rate_factors == {"logits/": pytest.approx(10.0)}
    rates = [float(optimizer._learning_rate(step)) for step in (0, 3, 6)]
    assert rates == pytest.approx([0.02, 0.01, 0.0], abs=1e-7)
    model = classifier(_backbone(), CLASSES, settings, seed=1)
    assert [v.path for v in model.trainable_variables if "logits/" in v.path] == [
        "logits/kernel", "logits/bias",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="backbone_rate must be a finite number above 0"):
        FineTune(backbone_rate=0.0)
    with pytest.raises(ValueError, match="part must be one of none, bias"):
        FineTune(part="head")


def test_runs_that_share_a_budget_spend_it_together():
    settings = SampledHead(batch_size=100, epochs=2)
    alone = plan_for(settings, 1000, 2.0, 1e-5)
    shared = plan_for(settings, 1000, 2.0, 1e-5, runs=3)
    assert alone.steps == shared.steps == 20
    assert shared.noise_multiplier > alone.noise_multiplier
    assert 1.98 < shared.epsilon_after(60) <= 2.0
    whole = plan_for(dataclasses.replace(settings, batch_size=5000), 1000, 2.0, 1e-5)
    assert whole.sampling == "full_batch" and whole.batch_size == 1000


def test_charged_tuning_of_the_schedule_is_rejected():
    x, y = clusters(100, 4, CLASSES)
    candidate = Candidate("sampled_head", grid={"batch_size": [10, 20]})
    with pytest.raises(ValueError, match="take batch_size and epochs out of the grid"):
        tune(candidate, as_table(x, y, CLASSES), Budget(100, CLASSES, 1.0, 1e-5), charge=True)


def test_what_does_not_fit_together_is_named():
    x, y = clusters(100, 4, CLASSES)
    with pytest.raises(TypeError, match="learns from pictures"):
        FineTune().source(as_table(x, y, CLASSES))
    with pytest.raises(TypeError, match="learns from feature rows"):
        SampledHead().source(_pictures())
    with pytest.raises(ValueError, match="needs a backbone"):
        FineTune().model(_pictures(), CLASSES, None)
    served = Backbone("served", lambda pictures: pictures, lambda x: x, SIZE, {})
    with pytest.raises(BackboneError, match="'served' is not a Keras model"):
        FineTune(backbone=lambda: served).model(_pictures(), CLASSES, None)
    with pytest.raises(ValueError, match="no preparation"):
        Candidate("sampled_head", preparation={"center": "none"}).make({})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "rmsprop"}, "optimizer must be one of sgd"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"init": -1.0}, "init must be a finite number of at least 0"),
        ({"rate_schedule": "step"}, "rate_schedule must be one of constant, cosine"),
        ({"normalize": "cube"}, "normalize must be"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        make_method("sampled_head", settings)
