"""Normalizations, tied embeddings, LoRA, attention, and layers of keras_hub."""

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.models.gemma import rms_normalization
from keras_hub.src.models.gemma3 import gemma3_layers
from keras_hub.src.models.gpt_oss import gpt_oss_layer_norm
from keras_hub.src.models.llama import llama_layernorm
from keras_hub.src.models.mistral import mistral_layer_norm
from keras_hub.src.models.mixtral import mixtral_layer_norm
from keras_hub.src.models.phi3 import phi3_layernorm
from keras_hub.src.models.qwen import qwen_layernorm
from keras_hub.src.models.qwen_moe import qwen_moe_layernorm

from tests.clipping.models import floats, ids, perturbed
from tests.clipping.reference import check, class_loss
from tfdp.clipping import clipped_gradient_sum, per_example_norms

layers, ops = keras.layers, keras.ops

SINGLE = {"engines": ["single_pass"]}


def sequential(*make, shape, dtype=None):
    def build():
        stack = [layers.Input(shape, dtype=dtype), *(m() for m in make)]
        return perturbed(keras.Sequential(stack))

    return build


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: layers.GroupNormalization(2), (3, 3, 4)),
        (lambda: layers.GroupNormalization(-1, axis=1, scale=False), (4, 5)),
        (lambda: layers.GroupNormalization(1, axis=-2, center=False), (3, 4, 5)),
        (lambda: layers.RMSNormalization(), (3, 4)),
        (lambda: layers.RMSNormalization(axis=[1, 2]), (3, 4)),
        (lambda: layers.PReLU(shared_axes=[1]), (3, 4)),
        (lambda: layers.PReLU(), (3, 4)),
    ],
)
def test_normalizations_and_scales(make, shape):
    build = sequential(make, lambda: layers.Dense(3), shape=shape)
    check(build, floats(3, *shape), floats(3, *shape[:-1], 3), **SINGLE)


class TiedLanguageModel(keras.Model):
    """Looks ids up, mixes, and multiplies by the same table."""

    def __init__(self, tied=True, cap=None):
        super().__init__()
        self.embed = layers.ReversibleEmbedding(9, 4, tie_weights=tied, logit_soft_cap=cap)
        self.mix = layers.Dense(4, activation="tanh")

    def call(self, x):
        return self.embed(self.mix(self.embed(x)), reverse=True)


@pytest.mark.parametrize("tied, cap", [(True, None), (True, 2.0), (False, None)])
def test_reversible_embedding(tied, cap):
    def build():
        model = TiedLanguageModel(tied, cap)
        model(ids(1, 5, below=9))
        return model

    x = ids(4, 5, below=9)
    x[0] = 3
    check(build, x, ids(4, 5, below=9, seed=1), class_loss, **SINGLE)


def with_lora(make, **inputs):
    """The layer in LoRA, with b moved away from the zeros it starts at."""

    def build():
        layer = make()
        model = keras.Sequential([layers.Input(**inputs), layer, layers.Dense(2)])
        layer.enable_lora(2, lora_alpha=3)
        return perturbed(model)

    return build


@pytest.mark.parametrize(
    "make, x",
    [
        (lambda: layers.Dense(3, activation="tanh"), floats(3, 5, 4)),
        (lambda: layers.EinsumDense("abc,cde->abde", (5, 3, 2), bias_axes="e"), floats(3, 5, 4)),
        (lambda: layers.EinsumDense("abc,bcd->abd", (5, 3)), floats(3, 5, 4)),
        (lambda: layers.Embedding(7, 3), ids(3, 5, below=7)),
        (lambda: layers.Conv2D(3, 2, padding="same"), floats(3, 5, 4, 2)),
    ],
)
def test_lora(make, x):
    build = with_lora(make, shape=x.shape[1:], dtype=str(x.dtype))
    found = check(build, x, floats(3, *build().output_shape[1:]), **SINGLE)
    assert len(found.gradients) == len(build().trainable_variables)


def test_grouped_query_attention():
    def build():
        x = layers.Input((5, 6))
        return keras.Model(x, layers.GroupQueryAttention(3, 4, 2)(x, x))

    check(build, floats(3, 5, 6), floats(3, 5, 6), **SINGLE)


def test_keras_hub_transformer_with_positions_and_padding():
    def build():
        x = layers.Input((6,), dtype="int32")
        y = keras_hub.layers.TokenAndPositionEmbedding(9, 8, 4, mask_zero=True)(x)
        y = keras_hub.layers.TransformerEncoder(8, 2)(y)
        y = keras_hub.layers.TransformerDecoder(8, 2)(y, y)
        return keras.Model(x, layers.Dense(9)(y))

    x = ids(3, 6, below=9)
    x[:, 4:] = 0
    x[:, 0] = 1
    check(build, x, ids(3, 6, below=9, seed=1), class_loss, **SINGLE)


def test_the_norms_of_keras_hub_models_have_rules():
    norms = [
        llama_layernorm.LlamaLayerNorm,
        mistral_layer_norm.MistralLayerNormalization,
        mixtral_layer_norm.MixtralLayerNormalization,
        phi3_layernorm.Phi3LayerNorm,
        qwen_layernorm.QwenLayerNorm,
        qwen_moe_layernorm.QwenMoeLayerNorm,
        gpt_oss_layer_norm.GptOssLayerNormalization,
        rms_normalization.RMSNormalization,
        gemma3_layers.RMSNormalization,
    ]
    build = sequential(*norms, lambda: layers.Dense(3), shape=(3, 4))
    check(build, floats(3, 3, 4), floats(3, 3, 3), **SINGLE)


class VisionTransformer(keras.Model):
    """Positions [1, T] go through an Embedding, and are broadcast over the batch."""

    def __init__(self):
        super().__init__()
        self.patches = layers.Conv2D(6, 2, strides=2)
        self.positions = layers.Embedding(4, 6)
        self.attention = layers.MultiHeadAttention(2, 3)
        self.norm, self.head = layers.LayerNormalization(), layers.Dense(3)

    def call(self, images):
        x = ops.reshape(self.patches(images), (-1, 4, 6))
        x = x + self.positions(ops.expand_dims(ops.arange(4), 0))
        x = self.norm(x)
        return self.head(ops.mean(x + self.attention(x, x), axis=1))


def test_positions_broadcast_over_the_batch_are_told_apart():
    def build():
        model = VisionTransformer()
        model(floats(1, 4, 4, 3))
        return perturbed(model)

    check(build, floats(4, 4, 4, 3), ids(4, below=3), class_loss, **SINGLE)


def test_a_batch_size_that_equals_another_axis_is_no_batch_axis():
    """Four positions without a batch axis, and a batch of four."""

    class Unbatched(VisionTransformer):
        def call(self, images):
            x = ops.reshape(self.patches(images), (-1, 4, 6)) + self.positions(ops.arange(4))
            return self.head(ops.mean(self.norm(x), axis=1))

    def build():
        model = Unbatched()
        model(floats(1, 4, 4, 3))
        return perturbed(model)

    with pytest.warns(UserWarning, match="mapped over examples"):
        check(build, floats(4, 4, 4, 3), ids(4, below=3), class_loss, engines=["auto"])


def test_a_loss_over_three_forward_passes_is_one_example():
    """A23."""
    dense, x = layers.Dense(2), layers.Input((4,))
    passes = [dense(layers.Dropout(0.5)(x)) for _ in range(3)]
    model = keras.Model(x, layers.Average()(passes))
    found = clipped_gradient_sum(model, "mse", floats(5, 4), floats(5, 2), 1e9, jit_compile=False)
    for row in range(5):
        alone = clipped_gradient_sum(
            model, "mse", floats(5, 4), floats(5, 2), 1e9,
            mask=np.arange(5) == row, jit_compile=False,
        )  # fmt: skip
        size = np.sqrt(sum((g.numpy() ** 2).sum() for g in alone.gradients))
        assert size == pytest.approx(float(found.norms[row]), rel=1e-5)


def test_keras_applications_with_frozen_batch_norm():
    model = keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, classes=3)
    for layer in model.layers:
        layer.trainable = not isinstance(layer, layers.BatchNormalization)
    x, y = floats(2, 32, 32, 3), ids(2, below=3)
    loss = keras.losses.SparseCategoricalCrossentropy()
    norms = per_example_norms(model, loss, x, y, engine="single_pass", jit_compile=False)
    np.testing.assert_allclose(norms, brute_force_float32(model, loss, x, y), rtol=1e-3)


def brute_force_float32(model, loss, x, y):
    import tensorflow as tf

    norms = []
    for i in range(len(x)):
        with tf.GradientTape() as tape:
            value = loss(y[i : i + 1], model(x[i : i + 1], training=True))
        weights = [v.value for v in model.trainable_variables]
        norms.append(float(tf.linalg.global_norm(tape.gradient(value, weights))))
    return norms
