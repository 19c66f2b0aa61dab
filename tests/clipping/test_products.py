"""Norms and sums are of float32 products, also where devices round their factors by default."""

import pytest
import tensorflow as tf

from tests.clipping.models import dense_net
from tfdp.clipping import ClippedGradient, per_example_loss


@pytest.fixture
def coarse(monkeypatch):
    """A machine with a GPU, as far as anyone asks, and TensorFlow's default for it."""
    settings = tf.config.experimental
    before = settings.tensor_float_32_execution_enabled()
    settings.enable_tensor_float_32_execution(True)
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: ["one"] if kind == "GPU" else []
    )
    yield settings.tensor_float_32_execution_enabled
    settings.enable_tensor_float_32_execution(before)


def product_in_xla() -> str:
    a = tf.ones([4, 4])
    product = tf.function(lambda: tf.matmul(a, a), jit_compile=True)
    return product.experimental_get_compiler_ir()(stage="hlo")


def test_clipping_asks_every_device_for_float32_products(coarse):
    """B3."""
    assert "operand_precision" not in product_in_xla()
    with pytest.warns(UserWarning, match="TensorFloat-32 is turned off"):
        ClippedGradient(dense_net(), per_example_loss("mse"), 1.0)
    assert not coarse()
    assert "operand_precision={highest,highest}" in product_in_xla()


def test_on_cpus_the_setting_stays_as_it_is(coarse, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    ClippedGradient(dense_net(), per_example_loss("mse"), 1.0)
    assert coarse()
