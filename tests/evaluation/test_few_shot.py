"""The few-shot probe: its objective, its draws, and what it rejects."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tfdp.evaluation import few_shot_probe
from tfdp.evaluation.few_shot import _fit, _normalized


def clusters(count, classes, dimension, noise, seed=0):
    """Points around `classes` random centres, and their labels."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = np.random.default_rng(99).normal(size=(classes, dimension))
    return centres[labels] + noise * generator.normal(size=(count, dimension)), labels


def reference_weights(rows, labels, l2):
    """Minimises mean cross-entropy + (l2 / n) / 2 * ||W||^2 over one row of W a class."""
    classes, (count, dimension) = labels.max() + 1, rows.shape

    def objective(flat):
        weights = flat.reshape(classes, dimension)
        logits = rows @ weights.T
        log_sum = np.logaddexp.reduce(logits, axis=1)
        loss = np.mean(log_sum - logits[np.arange(count), labels])
        error = np.exp(logits - log_sum[:, None])
        error[np.arange(count), labels] -= 1
        gradient = error.T @ rows / count + l2 / count * weights
        return loss + l2 / count / 2 * np.sum(weights**2), gradient.ravel()

    start = np.zeros(classes * dimension)
    options = {"maxiter": 20_000, "gtol": 1e-10, "ftol": 1e-15}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(classes, dimension)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("l2", [0.0025, 0.5])
def test_regression_minimises_the_reference_objective(classes, l2):
    rows, labels = clusters(60, classes, 8, noise=1.0)
    rows = _normalized(rows)
    model, weights = _fit(rows, labels, l2), reference_weights(rows, labels, l2)
    expected = rows @ weights.T
    expected = np.exp(expected - np.logaddexp.reduce(expected, axis=1)[:, None])
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=2e-3)


def test_rows_are_centred_by_their_own_mean_and_scaled_to_unit_norm():
    rows = _normalized(np.array([[1.0, 2.0, 3.0], [7.0, 7.0, 7.0], [0.1, 0.1, 0.1], [0, 0, 0]]))
    np.testing.assert_allclose(rows[0], np.array([-1, 0, 1]) / np.sqrt(2))
    np.testing.assert_array_equal(rows[1:], 0)


def test_accuracy_rises_with_separation_and_is_chance_without():
    train, labels = clusters(300, 10, 32, noise=0.3)
    test, test_labels = clusters(500, 10, 32, noise=0.3, seed=1)
    good = few_shot_probe(train, labels, test, test_labels, draws=3)
    assert list(good) == [1, 2, 5, 10]
    assert all(result.mean > 0.95 for result in good.values())
    noise = np.random.default_rng(2).normal(size=(800, 32))
    chance = few_shot_probe(noise[:300], labels, noise[300:], test_labels, draws=3)
    # 500 tests at 10 %: a standard deviation of 1.3 %; 7 of them are passed by chance 1e-11 times.
    assert all(abs(result.mean - 0.1) < 0.094 for result in chance.values())


def test_mean_and_deviation_are_over_the_draws():
    train, labels = clusters(100, 5, 4, noise=1.5)
    test, test_labels = clusters(100, 5, 4, noise=1.5, seed=1)
    result = few_shot_probe(train, labels, test, test_labels, shots=[2], draws=6)[2]
    assert len(set(result.accuracies)) > 1
    assert result.mean == pytest.approx(np.mean(result.accuracies))
    assert result.deviation == pytest.approx(np.std(result.accuracies, ddof=1))
    single = few_shot_probe(train, labels, test, test_labels, shots=[2], draws=1)[2]
    assert single.accuracies == result.accuracies[:1]
    assert single.deviation == 0


def test_the_same_seed_draws_the_same_examples_for_all_features():
    train, labels = clusters(100, 5, 4, noise=1.5)
    test, test_labels = clusters(100, 5, 4, noise=1.5, seed=1)
    first = few_shot_probe(train, labels, test, test_labels, shots=[1, 3], draws=4)
    assert first == few_shot_probe(train, labels, test, test_labels, shots=[3, 1], draws=4)
    assert first != few_shot_probe(train, labels, test, test_labels, shots=[1, 3], draws=4, seed=1)
    # A rotation of the features orthogonal to the mean direction changes no distance: if the same
    # examples are drawn, each draw has the same accuracy.
    basis = np.linalg.qr(np.c_[np.ones(4), np.random.default_rng(3).normal(size=(4, 3))])[0]
    turn = basis @ np.diag([1, -1, 1, -1]) @ basis.T
    turned = few_shot_probe(train @ turn, labels, test @ turn, test_labels, shots=[1, 3], draws=4)
    assert first == turned


def test_labels_may_be_strings():
    train, labels = clusters(40, 4, 8, noise=0.1)
    names = np.array(["cat", "dog", "fish", "owl"])[labels]
    result = few_shot_probe(train, names, train, names, shots=[1], draws=1)
    assert result[1].mean == 1.0


def test_bad_input_is_named():
    train, labels = clusters(20, 4, 8, noise=0.1)
    with pytest.raises(ValueError, match=r"features_test must be \[N, D\]"):
        few_shot_probe(train, labels, train, labels[:3])
    with pytest.raises(ValueError, match="8 columns, features_test 4"):
        few_shot_probe(train, labels, train[:, :4], labels, shots=[1])
    with pytest.raises(ValueError, match="has 5 examples in labels_train"):
        few_shot_probe(train, labels, train, labels, shots=[1, 10])
    with pytest.raises(ValueError, match=r"labels_train lacks: \[7\]"):
        few_shot_probe(train, labels, train, np.where(labels == 1, 7, labels), shots=[1])
    with pytest.raises(ValueError, match="at least 2 classes"):
        few_shot_probe(train, labels * 0, train, labels * 0, shots=[1])
    with pytest.raises(ValueError, match="features_train hold values that are not finite"):
        few_shot_probe(np.where(train > 0, np.nan, train), labels, train, labels)
    with pytest.raises(ValueError, match="shots must be"):
        few_shot_probe(train, labels, train, labels, shots=[0])
    with pytest.raises(ValueError, match="draws must be at least 1"):
        few_shot_probe(train, labels, train, labels, shots=[1], draws=0)
