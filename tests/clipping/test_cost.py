"""Which exact method is taken: the fastest, unless it needs memory without limit."""

import numpy as np
import pytest
import tensorflow as tf

from tests.clipping.models import floats
from tfdp.clipping.terms import ConvolutionTerm, MatMulTerm, Window
from tfdp.clipping.terms.convolution_terms import cheapest_method
from tfdp.clipping.terms.matmul_terms import explicit_is_cheaper


@pytest.mark.parametrize("positions", [1, 16, 64, 128, 200, 250])
def test_gradients_of_a_vocabulary_are_not_formed(positions):
    # 32,000 x 256 numbers an example, more than the positions' inputs and output gradients
    assert not explicit_is_cheaper(positions, 32_000, 256)
    assert not explicit_is_cheaper(positions, 256, 32_000)


@pytest.mark.parametrize(
    ("positions", "p", "q", "explicit"),
    [
        (65, 192, 768, False),  # ghost norms: as fast, and less memory
        (196, 192, 768, True),
        (196, 192, 192, True),
        (2, 192, 768, False),
        (1024, 32, 32, True),  # no larger than the positions
    ],
)
def test_the_cheaper_of_two_methods_is_taken(positions, p, q, explicit):
    assert explicit_is_cheaper(positions, p, q) is explicit


def test_a_convolution_forms_no_gradients_larger_than_what_its_layer_holds():
    numbers, ghost = 576 * 64, 1024 * 1024 * (576 + 64)
    methods = {
        held: cheapest_method(1024 * numbers, ghost, numbers, groups=1, held=held)
        for held in (18_000, 18_500, 131_072)  # its inputs and outputs; gradients take as much
    }
    assert methods == {18_000: "streamed", 18_500: "explicit", 131_072: "explicit"}


def test_a_convolution_counts_each_product_of_two_places_of_its_inputs_once():
    """Gram matrices of the inputs themselves, not of the nine places that a kernel sees."""
    inputs, gradients = tf.ones([2, 8, 8, 256]), tf.ones([2, 8, 8, 256])
    window = Window((3, 3), (1, 1), (1, 1), "same")
    term = ConvolutionTerm(inputs, gradients, window, 1, lambda x, d: None)
    assert term.method == "ghost"
    graph = tf.function(term.squared_norm).get_concrete_function().graph
    products = [op for op in graph.get_operations() if op.type == "BatchMatMulV2"]
    shapes = sorted(tuple(op.outputs[0].shape[-2:]) for op in products)
    assert shapes == [(64, 64), (100, 100)]  # 64 positions; 10 x 10 padded places


@pytest.mark.parametrize(
    ("positions", "width", "forms_gradients"), [(8, 512, False), (1024, 16, True)]
)
def test_both_methods_give_the_norm_and_each_is_taken_where_it_is_cheaper(
    positions, width, forms_gradients
):
    """H4."""
    inputs, gradients = floats(3, positions, width), floats(3, positions, width, seed=1)
    term = MatMulTerm(tf.constant(inputs), tf.constant(gradients), (width, width))
    assert term.forms_gradients is forms_gradients
    exact = np.einsum("btp,btq->bpq", inputs.astype("float64"), gradients.astype("float64"))
    np.testing.assert_allclose(term.squared_norm(), (exact**2).sum((1, 2)), rtol=1e-5)
