"""The private optimizers: Keras's rules on noised gradients, and nothing but those."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.optimizers import DPLAMB, DPSGD, DPAdam, DPAdamW, RawGradientsError
from tfdp.privacy import PrivacyPlan
from tfdp.privacy.noise import NoisyGradients

PRIVATE = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}
PAIRS = [
    (DPSGD, keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    (DPAdam, keras.optimizers.Adam, {"beta_1": 0.7, "beta_2": 0.8, "epsilon": 1e-3}),
    (DPAdamW, keras.optimizers.AdamW, {"beta_1": 0.7, "weight_decay": 0.3, "amsgrad": True}),
    (DPSGD, keras.optimizers.SGD, {"global_clipnorm": 0.1, "weight_decay": 0.1}),
    (DPAdam, keras.optimizers.Adam, {"use_ema": True, "ema_overwrite_frequency": 2}),
]


def steps(optimizer, gradients, start=(3.0, 4.0)):
    variable = keras.Variable(np.array(start, "float32"))
    for gradient in gradients:
        gradient = tf.constant(gradient, tf.float32)
        if hasattr(optimizer, "privacy"):
            optimizer.apply(NoisyGradients([gradient]), [variable])
        else:
            optimizer.apply([gradient], [variable])
    return variable.numpy()


@pytest.mark.parametrize("private, plain, arguments", PAIRS)
def test_every_keras_argument_is_effective(private, plain, arguments):
    """C7."""
    gradients = [[1.0, -2.0], [0.5, 0.25], [3.0, 1.0]]
    ours = steps(private(0.1, **PRIVATE, **arguments), gradients)
    np.testing.assert_array_equal(ours, steps(plain(0.1, **arguments), gradients))


@pytest.mark.parametrize("private, plain, arguments", PAIRS)
def test_config_round_trips(private, plain, arguments):
    """C7."""
    optimizer = private(0.1, **PRIVATE, **arguments)
    copy = private.from_config(optimizer.get_config())
    for name, value in arguments.items():
        assert getattr(copy, name) == pytest.approx(value)
    assert (copy.clip_norm, copy.noise_multiplier) == (1.0, 1.0)


def test_one_lamb_step_by_hand():
    """C21."""
    # m_hat / sqrt(v_hat) = (1, 1); trust ratio 5 / sqrt(2); w - 0.1 * 3.53553
    np.testing.assert_allclose(
        steps(DPLAMB(0.1, **PRIVATE), [[1.0, 1.0]]), [2.64645, 3.64645], atol=1e-5
    )


def test_zero_weights_have_trust_ratio_one():
    """C21."""
    np.testing.assert_allclose(
        steps(DPLAMB(0.1, **PRIVATE), [[1.0, 1.0]], start=(0.0, 0.0)), [-0.1, -0.1], atol=1e-6
    )


def test_decay_inside_the_ratio_is_the_papers_and_outside_is_keras():
    """C21."""
    inside = steps(DPLAMB(0.1, weight_decay=0.5, **PRIVATE), [[1.0, 1.0]])
    # direction (1, 1) + 0.5 * (3, 4) = (2.5, 3), norm 3.905125; ratio 5 / 3.905125 = 1.280369
    np.testing.assert_allclose(inside, [3 - 0.1280369 * 2.5, 4 - 0.1280369 * 3], atol=1e-5)
    outside = steps(DPLAMB(0.1, weight_decay=0.5, decay_in_ratio=False, **PRIVATE), [[1.0, 1.0]])
    keras_lamb = steps(keras.optimizers.Lamb(0.1, weight_decay=0.5), [[1.0, 1.0]])
    np.testing.assert_allclose(outside, keras_lamb, atol=1e-6)


def test_exclusions_are_effective_and_round_trip():
    """C21."""
    optimizer = DPLAMB(
        0.1,
        weight_decay=0.5,
        exclude_from_layer_adaptation=["bias"],
        exclude_from_decay=["bias"],
        **PRIVATE,
    )
    copy = DPLAMB.from_config(optimizer.get_config())
    for each in (optimizer, copy):
        bias = keras.Variable(np.array([3.0, 4.0], "float32"), name="bias")
        each.apply(NoisyGradients([tf.constant([1.0, 1.0])]), [bias])
        np.testing.assert_allclose(bias.numpy(), [2.9, 3.9], atol=1e-6)  # ratio 1, no decay


@pytest.mark.parametrize("name", ["exclude_from_layer_adaptation", "exclude_from_decay"])
def test_a_text_is_no_list_of_exclusions(name):
    with pytest.raises(TypeError, match=rf"{name} must be a list .* got 'bias': write \['bias'\]"):
        DPLAMB(0.1, **{name: "bias"}, **PRIVATE)


@pytest.mark.parametrize("private", [DPSGD, DPAdam, DPAdamW, DPLAMB])
def test_rate_factors_are_effective_and_round_trip(private):
    settings = {**PRIVATE, "weight_decay": 0.0}
    optimizer = private(0.1, rate_factors={"logits": 0.5}, **settings)
    alone = [steps(private(rate, **settings), [[1.0, -2.0]]) for rate in (0.1, 0.05)]
    for each in (optimizer, private.from_config(optimizer.get_config())):
        first = keras.Variable(np.array([3.0, 4.0], "float32"), name="stem")
        last = keras.Variable(np.array([3.0, 4.0], "float32"), name="logits")
        gradient = tf.constant([1.0, -2.0])
        each.apply(NoisyGradients([gradient, gradient]), [first, last])
        np.testing.assert_allclose([first.numpy(), last.numpy()], alone, rtol=1e-6)


@pytest.mark.parametrize("call", ["apply", "apply_gradients"])
def test_raw_gradients_are_rejected(call):
    """A1."""
    optimizer = DPSGD(0.1, **PRIVATE)
    variable = keras.Variable([1.0])
    with pytest.raises(RawGradientsError, match="clipped_gradient_sum"):
        if call == "apply":
            optimizer.apply([tf.constant([1.0])], [variable])
        else:
            optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    np.testing.assert_array_equal(variable.numpy(), [1.0])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "Give both"),
        ({"l2_norm_clip": 1.0}, "Give both"),
        ({"l2_norm_clip": 1.0, "noise_multiplier": None}, "Give both"),
        ({"l2_norm_clip": 1.0, "noise_multiplier": -1.0}, "noise_multiplier .* got -1"),
        (
            {"l2_norm_clip": 1.0, "noise_multiplier": float("nan")},
            "noise_multiplier .* got nan",
        ),
        ({"l2_norm_clip": 0.0, "noise_multiplier": 1.0}, "l2_norm_clip .* got 0"),
        (
            {"l2_norm_clip": float("inf"), "noise_multiplier": 1.0},
            "l2_norm_clip .* got inf",
        ),
        ({**PRIVATE, "gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
        ({**PRIVATE, "loss_scale_factor": 8.0}, "loss_scale_factor"),
    ],
)
def test_settings_out_of_range_are_rejected_at_construction(arguments, message):
    """B15."""
    with pytest.raises(ValueError, match=message):
        DPAdam(0.1, **arguments)


def test_a_plan_gives_clip_and_noise_and_round_trips():
    plan = PrivacyPlan(1000, 100, 10, clip_norm=0.5, noise_multiplier=1.25, delta=1e-5)
    optimizer = DPSGD(0.1, privacy=plan)
    assert (optimizer.clip_norm, optimizer.noise_multiplier) == (0.5, 1.25)
    assert DPSGD.from_config(optimizer.get_config()).privacy == plan
    with pytest.raises(ValueError, match="either"):
        DPSGD(0.1, privacy=plan, **PRIVATE)
