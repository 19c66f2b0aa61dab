"""Counting by arithmetic agrees with the models that are built."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.captioner.fixture import variables_by_path
from tests.captioner.tiny import tiny_config, tiny_inputs, tiny_model
from tfdp.captioner import (
    Captioner,
    CaptionerConfig,
    count_parameters,
    estimate_activation_bytes_per_example,
    estimate_flops_per_example,
)
from tfdp.captioner.model_size import frozen_shapes, trained_layers, trained_shapes

PUBLISHED = {
    "nano": 20_813_754,
    "tiny": 59_365_434,
    "small": 115_685_562,
    "base": 189_774_138,
    "large": 407_376_954,
}


@pytest.mark.parametrize(("size", "trainable"), PUBLISHED.items())
def test_published_sizes_have_the_published_counts(size, trainable):
    assert count_parameters(CaptionerConfig.dpcap(size)) == trainable


@pytest.mark.parametrize(("size", "trainable"), PUBLISHED.items())
def test_published_sizes_as_models_without_their_memory(size, trainable):
    with keras.StatelessScope(initialize_variables=False):
        model = Captioner(CaptionerConfig.dpcap(size))
    assert sum(math.prod(v.shape) for v in model.trainable_weights) == trainable
    # Forgets the weights that were never given a value.
    keras.utils.clear_session()


def test_nano_built():
    assert sum(v.value.shape.num_elements() for v in nano().trainable_weights) == PUBLISHED["nano"]


def nano() -> Captioner:
    return Captioner(CaptionerConfig.dpcap("nano"))


@pytest.mark.parametrize("changes", [{}, {"mlp_ratio": 3, "decoder_norm": "pre"}])
def test_every_weight_has_the_reckoned_path_and_shape(changes):
    weights = variables_by_path(tiny_model(**changes))
    reckoned = trained_shapes(tiny_config(**changes)) | frozen_shapes(tiny_config(**changes))
    assert {path: tuple(weight.shape) for path, weight in weights.items()} == reckoned
    trained = {path for path, weight in weights.items() if weight.trainable}
    assert trained == trained_shapes(tiny_config(**changes)).keys()


def test_every_layer_has_the_reckoned_rows_and_channels(monkeypatch):
    model, seen = tiny_model(), {}
    kinds = (keras.layers.Dense, keras.layers.Embedding, keras.layers.LayerNormalization)
    for kind in kinds:
        monkeypatch.setattr(kind, "call", recording(kind.call, seen))
    model(tiny_inputs(1))
    for layer in trained_layers(tiny_config()):
        inputs, outputs = seen.pop(layer.path)
        assert outputs == (1, layer.rows, layer.outputs)
        assert inputs == (1, layer.rows, layer.inputs)[: len(inputs)]
        assert layer.recorded_values == math.prod(inputs) + math.prod(outputs)
    assert not seen


def recording(call, seen):
    def wrapped(self, inputs):
        outputs = call(self, inputs)
        seen[self.path.split("/", 1)[1]] = (tuple(inputs.shape), tuple(outputs.shape))
        return outputs

    return wrapped


def test_flops_are_those_that_tensorflow_counts():
    config = tiny_config(encoder_depth=3)
    model, inputs = Captioner(config), tiny_inputs(1, config)

    @tf.function
    def gradient(image, tokens):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model({"image": image, "tokens": tokens}))
        return [
            tf.convert_to_tensor(g)
            for g in tape.gradient(loss, [v.value for v in model.trainable_variables])
        ]

    graph = gradient.get_concrete_function(inputs["image"], inputs["tokens"]).graph
    assert matmul_flops(graph) == estimate_flops_per_example(config)


def matmul_flops(graph: tf.Graph) -> int:
    """2 x rows x columns x depth of every matrix product of the graph, batched ones included."""
    total = 0
    for op in graph.get_operations():
        if op.type in ("MatMul", "BatchMatMulV2"):
            flag = "transpose_a" if op.type == "MatMul" else "adj_x"
            depth = op.inputs[0].shape[-2 if op.get_attr(flag) else -1]
            total += 2 * depth * op.outputs[0].shape.num_elements()
        elif op.type == "Einsum":
            left, right = op.get_attr("equation").decode().split("->")[0].split(",")
            sizes = dict(zip(left, op.inputs[0].shape, strict=True))
            sizes |= dict(zip(right, op.inputs[1].shape, strict=True))
            total += 2 * int(np.prod(list(sizes.values())))
    return total


def test_activation_bytes_by_hand():
    config = tiny_config(encoder_depth=1, decoder_depth=1)
    encoder = 4 * (192 + 16) + 5 * (32 + 64 + 32 + 32 + 48 + 48) + 5 * 32
    bridge = 5 * (16 + 12)
    block = 6 * (48 + 24 + 24 + 24 + 24 + 24 + 36 + 36 + 24) + 5 * 36
    decoder = 6 * (1 + 12) + block + 6 * 24 + 6 * (12 + 11)
    attention = 2 * 5 * 5 + 3 * 6 * 6 + 3 * 6 * 5
    expected = 4 * (encoder + bridge + decoder + attention)
    assert estimate_activation_bytes_per_example(config) == expected
