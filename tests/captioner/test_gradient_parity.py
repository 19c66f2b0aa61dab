"""Per-example gradients of the captioner are the reference's, tensor by tensor."""

import numpy as np
import pytest

from tests.captioner.fixture import (
    build_fixture_model,
    load_io,
    name_map,
    per_example_gradients,
)

#: Relative error allowed in a squared norm, by the model's precision.
NORM_RTOL = {"float32": 1e-5, "float64": 1e-9}


@pytest.fixture(scope="module", params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def gradients(dtype):
    return per_example_gradients(build_fixture_model(dtype=dtype))


def squared_norms(gradients) -> np.ndarray:
    """[example, tensor], in the order of `param_names`."""
    paths = [source.path for source in name_map().values()]
    return np.array([[np.square(g[p].astype(np.float64)).sum() for p in paths] for g in gradients])


def test_every_trained_weight_is_compared(gradients):
    assert {source.path for source in name_map().values()} == gradients[0].keys()
    assert all(source.trained for source in name_map().values())


def test_squared_norms_per_tensor_and_in_total(gradients, dtype):
    io, norms = load_io(), squared_norms(gradients)
    rtol = NORM_RTOL[dtype]
    np.testing.assert_allclose(norms, io["grad_sqnorm_per_param_f64"], rtol=rtol)
    np.testing.assert_allclose(norms.sum(axis=1), io["grad_sqnorm_f64"], rtol=rtol)


def test_squared_norms_with_exact_position_tables():
    norms = squared_norms(per_example_gradients(build_fixture_model(exact_positions=True)))
    np.testing.assert_allclose(norms.sum(axis=1), load_io()["exactpos/grad_sqnorm"], rtol=1e-5)


def test_clipped_sums(gradients):
    io = load_io()
    norms = np.sqrt(squared_norms(gradients).sum(axis=1))
    factors = np.minimum(1.0, io["clip_norm"] / norms)
    np.testing.assert_allclose(factors, io["clip_coef"], rtol=1e-5)
    for name, source in name_map().items():
        ours = sum(f * g[source.path] for f, g in zip(factors, gradients, strict=True))
        theirs = source.to_keras(io[f"clipped_sum/{name}"])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
