"""Matrix products in the form that is fastest: the same numbers, and really in that form."""

import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import floats
from tfdp.clipping.terms import MatMulTerm
from tfdp.clipping.terms.ghost_norm import gram_matrices


def products(function, *arguments):
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    return [op for op in graph.get_operations() if op.type in ("MatMul", "BatchMatMulV2")]


@pytest.mark.parametrize(
    ("shape", "at_once"),
    [
        ((45, 3, 8192), [21, 21, 3]),  # half a million numbers at once
        ((3, 64, 16384), [1, 1, 1]),  # an example of its own where it has more
        ((70, 2, 3, 40_000), [3] * 23 + [1]),  # at most 32 products
        ((45, 300, 600), [45]),  # short rows in one product
        ((64, 40, 4096), [64]),  # and rows that are many
        ((2, 2, 4096), [2]),
    ],
)
def test_long_vectors_are_multiplied_a_few_examples_at_a_time(shape, at_once):
    found = products(gram_matrices, tf.TensorSpec(shape))
    assert [op.inputs[0].shape[0] for op in found] == at_once


@pytest.mark.parametrize("shape", [(45, 3, 8192), (3, 64, 16384), (7, 2, 3, 50_000), (2, 5, 6)])
@pytest.mark.parametrize("compiled", [False, True])
def test_gram_matrices_equal_float64_however_they_are_parted(shape, compiled):
    """H4."""
    values = floats(*shape)
    got = tf.function(gram_matrices, jit_compile=compiled, autograph=False)(tf.constant(values))
    exact = values.astype("float64")
    exact = exact @ np.swapaxes(exact, -1, -2)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * shape[-1])


@pytest.mark.parametrize(("p", "q"), [(13, 3), (12, 6), (3, 13), (7, 5), (9, 1)])
@pytest.mark.parametrize("compiled", [False, True])
def test_clipped_sums_equal_float64_for_weights_of_every_form(p, q, compiled):
    inputs, gradients = floats(5, 4, p), floats(5, 4, q, seed=1)
    coefficients = np.linspace(0, 1, 5, dtype="float32")

    @tf.function(jit_compile=compiled, autograph=False)
    def total(inputs, gradients):
        return MatMulTerm(inputs, gradients, (p, q)).weighted_sum(tf.constant(coefficients))

    exact = [x.astype("float64") for x in (inputs, gradients, coefficients)]
    exact = np.einsum("btp,btq,b->pq", *exact)
    np.testing.assert_allclose(total(inputs, gradients), exact, rtol=1e-5, atol=1e-5)


def test_products_with_few_columns_are_formed_as_the_transpose_and_xla_leaves_them():
    inputs, gradients = floats(2, 40, 256), floats(2, 40, 64)

    @tf.function(jit_compile=True, autograph=False)
    def total(inputs, gradients):
        return MatMulTerm(inputs, gradients, (256, 64)).weighted_sum(tf.ones([2]))

    compiled = total.experimental_get_compiler_ir(inputs, gradients)(stage="optimized_hlo")
    dots = [line for line in compiled.splitlines() if " dot(" in line]
    assert len(dots) == 1
    assert "f32[64,256]" in dots[0]
