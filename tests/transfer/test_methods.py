"""What each method computes, by hand and on clusters that can be told apart."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import tfdp
from tests.transfer.tables import clusters
from tfdp.privacy.noise import NoiseKey
from tfdp.transfer import (
    METHODS,
    FeatureCovariance,
    FullBatch,
    LastLayer,
    LeastSquares,
    Newton,
    OneStep,
    Preparation,
    Steps,
    as_table,
)
from tfdp.transfer.methods.whitened import denoised
from tfdp.transfer.passes import Passes
from tfdp.transfer.release_budget import Release, Spending, whole_budget

CLASSES, DIM = 4, 10
X, Y = clusters(800, DIM, CLASSES, seed=1)
X_TEST, Y_TEST = clusters(400, DIM, CLASSES, seed=2)
PLAIN = Preparation("unit")
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)


def _fit(method, epsilon=float("inf"), preparation=None, seed=0, **kwargs):
    head = LastLayer(
        CLASSES,
        num_examples=len(X),
        epsilon=epsilon,
        method=method,
        preparation=preparation,
        seed=seed,
        **kwargs,
    )
    return head.fit(X, Y)


@pytest.fixture
def one_noise(monkeypatch):
    """The same noise for heads of different settings, which otherwise have none in common."""
    monkeypatch.setattr("tfdp.transfer.last_layer.key_from", lambda _: NoiseKey.from_seed(0))


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_every_method_tells_the_clusters_apart(name):
    assert _fit(name).evaluate(X_TEST, Y_TEST)["accuracy"] > 0.94


@pytest.mark.parametrize("name", [name for name in METHODS if name != "logistic"])
def test_at_epsilon_8_every_method_still_does(name):
    assert _fit(name, epsilon=8.0).evaluate(X_TEST, Y_TEST)["accuracy"] > 0.85


@pytest.mark.parametrize("name", [name for name in METHODS if name != "logistic"])
def test_at_epsilon_a_thousandth_none_does(name):
    """Independent noise for each class: one draw for all of them would cancel in the argmax.

    That is the published code's fault: its accuracy hardly depends on epsilon. Mean over seeds of
    a coin of chance 1/4; clusters that are told apart would give 1.
    """
    scores = [
        _fit(name, epsilon=1e-3, seed=seed).evaluate(X_TEST, Y_TEST)["accuracy"]
        for seed in range(4)
    ]
    assert np.mean(scores) < 0.65


def test_one_step_from_zero_is_the_classifier_of_class_sums():
    head = _fit(OneStep(), preparation=PLAIN).head
    own = np.stack([UNIT[label == Y].sum(axis=0) for label in range(CLASSES)], axis=1)
    expected = (own - UNIT.sum(axis=0)[:, None] / CLASSES) / len(X)
    np.testing.assert_allclose(head.kernel, expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(head.bias, np.zeros(CLASSES))


def test_one_step_predicts_the_same_at_any_learning_rate_and_clip(one_noise):
    """There is nothing to tune, and so nothing to charge for tuning."""
    predictions = [
        _fit(OneStep(learning_rate=rate), epsilon=1.0).logits(X_TEST).argmax(axis=1)
        for rate in (1e-3, 1.0, 1e3)
    ]
    predictions += [
        _fit(FullBatch(Steps(steps=1, clip_norm=clip)), 1.0, PLAIN).logits(X_TEST).argmax(axis=1)
        for clip in (1e-3, np.sqrt(1 - 1 / CLASSES))
    ]
    for other in predictions[1:]:
        np.testing.assert_array_equal(predictions[0], other)


def test_near_zero_weights_approach_exact_zeros(one_noise):
    exact = _fit(OneStep(), epsilon=1.0).head.kernel
    distances = [
        np.linalg.norm(_fit(OneStep(init=scale), epsilon=1.0).head.kernel - exact)
        for scale in (1e-1, 1e-3, 1e-6)
    ]
    assert distances[0] > 50 * distances[1] > 50 * distances[2]


def test_sigmoid_with_a_fixed_bias_keeps_the_class_s_own_sum():
    head = _fit(OneStep(loss="sigmoid", fixed_bias=-10.0), preparation=PLAIN).head
    own = np.stack([UNIT[label == Y].sum(axis=0) for label in range(CLASSES)], axis=1)
    np.testing.assert_allclose(head.kernel, own / len(X), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.bias, np.full(CLASSES, -10.0))


def test_prototypes_make_one_step_the_nearest_class_mean():
    preparation = Preparation("unit", center="private")
    head = _fit(OneStep(prototypes=True), preparation=preparation)
    rows = UNIT - UNIT.mean(axis=0)
    means = np.stack([rows[label == Y].sum(axis=0) for label in range(CLASSES)])
    means *= CLASSES / len(X)  # of classes of equal size
    test = X_TEST / np.linalg.norm(X_TEST, axis=1, keepdims=True) - UNIT.mean(axis=0)
    expected = (test @ means.T - np.sum(means**2, axis=1) / 2).argmax(axis=1)
    agreement = np.mean(head.logits(X_TEST).argmax(axis=1) == expected)
    assert agreement == 1.0
    with pytest.raises(ValueError, match="prototypes need"):
        OneStep(prototypes=True, loss="sigmoid")


def test_least_squares_without_noise_is_ridge_regression():
    head = _fit(LeastSquares(ridge=0.01), preparation=PLAIN).head
    moment = UNIT.T @ UNIT / len(X) + 0.01 * np.eye(DIM)
    expected = np.linalg.solve(moment, UNIT.T @ np.eye(CLASSES)[Y] / len(X))
    np.testing.assert_allclose(head.kernel, expected, rtol=1e-3, atol=1e-4)


def test_newton_s_first_step_is_the_one_of_its_formula():
    method = Newton(Steps(steps=1, loss="sigmoid", learning_rate=1.0, clip_norm=9.0), ridge=0.01)
    head = _fit(method, preparation=PLAIN).head
    hessian = (UNIT.T @ UNIT / len(X) + 0.01 * np.eye(DIM)) / 4
    expected = np.linalg.solve(hessian, UNIT.T @ (np.eye(CLASSES)[Y] - 0.5) / len(X))
    np.testing.assert_allclose(head.kernel, expected, rtol=1e-3, atol=1e-3)


def test_feature_covariance_preconditions_by_one_moment():
    loop = Steps(steps=1, learning_rate=0.5, clip_norm=9.0)
    head = _fit(FeatureCovariance(loop, ridge=0.1), preparation=PLAIN).head
    moment = UNIT.T @ UNIT / len(X) + 0.1 * np.eye(DIM)
    gradient = UNIT.T @ (np.full((len(X), CLASSES), 1 / CLASSES) - np.eye(CLASSES)[Y]) / len(X)
    expected = -0.5 * np.linalg.solve(moment, gradient)
    np.testing.assert_allclose(head.kernel, expected, rtol=1e-3, atol=1e-4)


def test_logistic_is_scikit_learn_s():
    ours = _fit("logistic").logits(X_TEST)
    theirs = LogisticRegression(C=1 / 0.15, tol=1e-8, max_iter=10_000).fit(UNIT, Y)
    test = X_TEST / np.linalg.norm(X_TEST, axis=1, keepdims=True)
    assert np.mean(ours.argmax(axis=1) == theirs.predict(test)) > 0.995


def test_logistic_rejects_a_finite_epsilon():
    with pytest.raises(ValueError, match="needs epsilon=inf"):
        _fit("logistic", epsilon=1.0)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "lamb"])
def test_optimizers_by_name_and_as_objects_agree(name, one_noise):
    objects = {
        "sgd": tfdp.optimizers.DPSGD,
        "momentum": tfdp.optimizers.DPSGD,
        "adam": tfdp.optimizers.DPAdam,
        "lamb": tfdp.optimizers.DPLAMB,
    }
    extra = {"momentum": 0.9} if name == "momentum" else {}
    given = objects[name](0.1, l2_norm_clip=123.0, noise_multiplier=0.0, **extra)
    loops = [
        Steps(steps=3, optimizer=name, learning_rate=0.1, init=0.01),
        Steps(steps=3, optimizer=given, init=0.01),
    ]
    heads = [_fit(FullBatch(loop), epsilon=2.0).head.kernel for loop in loops]
    np.testing.assert_array_equal(*heads)


def test_averaging_gives_the_mean_of_the_last_iterates():
    def kernel(steps, average):
        loop = Steps(steps=steps, learning_rate=1.0, average=average)
        return _fit(FullBatch(loop), preparation=PLAIN).head.kernel

    expected = (kernel(3, 0) + kernel(4, 0)) / 2
    np.testing.assert_allclose(kernel(4, 0.5), expected, rtol=1e-5, atol=1e-6)


def test_denoised_eigenvalues_keep_the_trace_below_the_noise_and_undo_its_push():
    """A spike of 3 under noise of radius 2 shows at 3 + 1 / 3."""
    values = np.array([-1.0, 0.5, 1.5, 3 + 1 / 3])
    found = denoised(values, 2.0)
    assert found[-1] == pytest.approx(3.0)
    np.testing.assert_allclose(found[:3], (1.0 + 1 / 3) / 3)
    np.testing.assert_array_equal(denoised(np.array([1.0, 2.0]), 0.0), [1.0, 2.0])


def test_class_weights_undo_imbalance():
    """Class sums favour the big class; balanced, the small one is found."""
    keep = np.flatnonzero((Y == 0) | (np.arange(len(Y)) % 20 == 0))
    head = LastLayer(
        CLASSES,
        num_examples=len(keep),
        epsilon=float("inf"),
        method=OneStep(),
        preparation=Preparation("unit", balance=True),
    ).fit(X[keep], Y[keep])
    plain = LastLayer(CLASSES, num_examples=len(keep), epsilon=float("inf"), method=OneStep()).fit(
        X[keep], Y[keep]
    )
    assert plain.evaluate(X_TEST, Y_TEST)["accuracy"] < 0.6
    assert head.evaluate(X_TEST, Y_TEST)["accuracy"] > 0.9


@pytest.mark.parametrize("epsilon", [8.0, float("inf")])
def test_a_class_without_examples_takes_no_weight_from_the_others(epsilon):
    """Weighed against its count, which is noise, the others would all but vanish."""
    keep = np.flatnonzero((Y != 3) & ((Y == 0) | (np.arange(len(Y)) % 2 == 0)))
    passes = Passes(as_table(X[keep], Y[keep], CLASSES))
    preparation = Preparation(balance=True, counts_share=0.5)
    plan = whole_budget(len(keep), epsilon, 1e-5)
    spent = [*preparation.releases(), Release("rest", 0.5)]
    weights = preparation.weights(passes, Spending(plan, spent, NoiseKey.from_seed(0)))
    counts = np.bincount(Y[keep], minlength=CLASSES)
    assert counts[3] == 0 and weights[3] == 1.0
    np.testing.assert_allclose(weights[:3], counts[1:3].min() / counts[:3], rtol=0.05)
    # Where no count is clear of its noise, none is told from another.
    drowned = whole_budget(len(keep), 0.01, 1e-5)
    weights = preparation.weights(passes, Spending(drowned, spent, NoiseKey.from_seed(0)))
    np.testing.assert_array_equal(weights, 1.0)
