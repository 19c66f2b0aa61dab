"""Per-example norms and clipped sum of the reference captioner, computed by another program."""

import keras
import numpy as np
import pytest

from tests.captioner.fixture import (
    build_fixture_model,
    inputs_and_targets,
    load_io,
    name_map,
    variables_by_path,
)
from tests.clipping.models import clipped


def reference_loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(
        y_true, y_pred, from_logits=True, ignore_class=0
    )


@pytest.fixture(scope="module", params=["single_pass", "vectorized"])
def found(request):
    """(result, position of every variable by its path) for one engine."""
    model = build_fixture_model()
    x, y = inputs_and_targets()
    result = clipped(
        model, reference_loss, x, y, float(load_io()["clip_norm"]), engine=request.param
    )
    paths = {id(v): path for path, v in variables_by_path(model).items()}
    return result, {paths[id(v)]: i for i, v in enumerate(model.trainable_variables)}


def test_losses_and_norms(found):
    result, _ = found
    np.testing.assert_allclose(result.losses, load_io()["loss_f64"], atol=4e-6)
    np.testing.assert_allclose(result.norms**2, load_io()["grad_sqnorm_f64"], rtol=1e-4)


def test_norms_of_every_tensor(found):
    result, position = found
    squares = result.squared_norms.numpy()
    for column, source in enumerate(name_map().values()):
        exact = load_io()["grad_sqnorm_per_param_f64"][:, column]
        ours = squares[position[source.path]]
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-12, err_msg=source.path)


def test_clipped_sum(found):
    result, position = found
    for name, source in name_map().items():
        exact = source.to_keras(load_io()[f"clipped_sum/{name}"])
        ours = result.gradients[position[source.path]]
        limit = 1e-5 * np.abs(exact).max()
        np.testing.assert_allclose(ours, exact, rtol=0, atol=limit, err_msg=name)
