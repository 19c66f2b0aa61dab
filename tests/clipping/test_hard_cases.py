"""Stochastic depth, outputs without a loss, and weights by output."""

import keras
import numpy as np
import pytest

from tests.clipping.models import clipped, floats, ids
from tests.clipping.reference import assert_equal, brute_force, class_loss, squared_error, twins

layers, ops = keras.layers, keras.ops
X, KINDS, SIZES = floats(6, 4), ids(6, below=3), floats(6, 1)


class StochasticDepth(layers.Layer):
    """Drops a residual branch, by a coin of every example's own."""

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seeds = rate, keras.random.SeedGenerator(0)

    def call(self, x, training=None):
        if not training:
            return x
        shape = (ops.shape(x)[0], *[1] * (len(x.shape) - 1))
        kept = keras.random.uniform(shape, seed=self.seeds) >= self.rate
        return x * ops.cast(kept, x.dtype) / (1 - self.rate)


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
def test_stochastic_depth_tosses_one_coin_an_example(engine):
    """Equal examples: the branch's weights have no gradient where it is dropped."""
    x = layers.Input((4,))
    branch = layers.Dense(4, name="branch")(x)
    model = keras.Model(x, layers.Dense(1)(x + StochasticDepth(0.5)(branch)))
    rows, y = np.ones((32, 4), "float32"), np.ones((32, 1), "float32")
    found = clipped(model, squared_error, rows, y, engine=engine)
    of_branch = found.squared_norms.numpy()[:2].sum(0)
    dropped = of_branch == 0
    assert 4 < dropped.sum() < 28  # all but 32 choose 4 of 2^32 tosses: 1e-5, and the seed is fixed
    for same in (dropped, ~dropped):
        np.testing.assert_allclose(found.norms.numpy()[same], found.norms.numpy()[same][0])


def two_outputs():
    x = layers.Input((4,))
    hidden = layers.Dense(5, activation="tanh")(x)
    outputs = {name: layers.Dense(n, name=name)(hidden) for name, n in (("kind", 3), ("size", 1))}
    return keras.Model(x, outputs)


@pytest.mark.parametrize("targets", [{"kind": KINDS}, {"kind": KINDS, "size": SIZES}])
def test_an_output_without_a_loss_has_no_part_in_the_gradient(targets):
    model, exact = twins(two_outputs)
    reference = brute_force(exact, lambda y, p: class_loss(y, p["kind"]), X, KINDS)
    found = clipped(model, {"kind": class_loss}, X, targets, 1.0)
    assert_equal(found, reference, 1.0)
    assert not found.gradients[-1].numpy().any()


def test_every_output_can_have_weights_of_its_own():
    losses, y = {"kind": class_loss, "size": squared_error}, {"kind": KINDS, "size": SIZES}
    model = two_outputs()
    weight = {"kind": np.zeros(6, "float32"), "size": np.full(6, 2, "float32")}
    weighted = clipped(model, losses, X, y, 1.0, sample_weight=weight)
    alone = clipped(model, {"size": squared_error}, X, {"size": SIZES}, 1.0)
    np.testing.assert_allclose(weighted.norms, 2 * alone.norms, rtol=1e-5)


def test_views_of_an_example_share_one_clip():
    """E12: Four views: the gradient of their mean loss is one example's, and bounded as such."""

    def build():
        views = layers.Input((4, 5))
        return keras.Model(views, layers.Dense(3)(layers.Dense(6, activation="tanh")(views)))

    x, y = floats(6, 4, 5), np.repeat(ids(6, below=3)[:, np.newaxis], 4, axis=1)
    model, exact = twins(build)
    reference = brute_force(exact, class_loss, x, y)
    clip_norm = 0.5 * float(reference.norms.min())
    for engine in ("single_pass", "two_pass", "vectorized"):
        assert_equal(
            clipped(model, class_loss, x, y, clip_norm, engine=engine), reference, clip_norm
        )
        one = clipped(model, class_loss, x[:1], y[:1], clip_norm, engine=engine)
        size = np.sqrt(sum(np.sum(np.square(g)) for g in one.gradients))
        assert size == pytest.approx(clip_norm, rel=1e-5)
