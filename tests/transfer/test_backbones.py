"""Backbones: the legacy reader lets nothing in, and folding changes nothing."""

import pickle
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.files.torch_writer import TorchWriter
from tests.transfer.legacy_writer import MAGIC, SYSTEM, tensor, write_legacy
from tfdp.files.torch_file import CheckpointError
from tfdp.transfer.backbones import (
    BackboneError,
    efficientnet_lite,
    load_backbone,
    load_efficientnet_lite,
)
from tfdp.transfer.backbones.backbone import pooled, resized
from tfdp.transfer.backbones.efficientnet_lite import VARIANTS, _blocks
from tfdp.transfer.backbones.legacy_torch_file import read_legacy_torch_file

RNG = np.random.default_rng(0)


@pytest.fixture
def writer(monkeypatch):
    return TorchWriter(monkeypatch)


def test_legacy_file_gives_its_tensors(writer, tmp_path):
    content = {
        "kernel": tensor(RNG.standard_normal((3, 2)).astype(np.float32)),
        "count": tensor(np.array([7])),
    }
    found = read_legacy_torch_file(write_legacy(writer, tmp_path / "a.pth", content))
    assert list(found) == ["kernel", "count"]
    np.testing.assert_array_equal(found["kernel"], content["kernel"].values)
    np.testing.assert_array_equal(found["count"], [7])


@pytest.mark.parametrize("cut", [0, 5, 60, -1, -9])
def test_cut_legacy_files_are_rejected_in_one_kind_of_error(writer, tmp_path, cut):
    content = {"a": tensor(np.ones(4, np.float32))}
    path = write_legacy(writer, tmp_path / "a.pth", content)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"a\.pth"):
        read_legacy_torch_file(path)


class _Evil:
    def __reduce__(self):
        return print, ("ran",)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_nothing_in_a_legacy_file_is_run(tmp_path, capsys, place):
    parts = [MAGIC, 1001, SYSTEM, {"a": 1}, []]
    parts[place] = _Evil()
    path = tmp_path / "evil.pth"
    path.write_bytes(b"".join(pickle.dumps(part, 2) for part in parts))
    with pytest.raises(CheckpointError, match="print"):
        read_legacy_torch_file(path)
    assert "ran" not in capsys.readouterr().out


def test_other_files_are_told_apart(tmp_path):
    (tmp_path / "zip.pth").write_bytes(b"PK\x03\x04 something")
    with pytest.raises(CheckpointError, match="legacy"):
        read_legacy_torch_file(tmp_path / "zip.pth")
    with pytest.raises(FileNotFoundError):
        read_legacy_torch_file(tmp_path / "none.pth")


def _norm(state, name, width):
    state[f"{name}.weight"] = RNG.uniform(0.5, 1.5, width)
    state[f"{name}.bias"] = RNG.standard_normal(width) * 0.1
    state[f"{name}.running_mean"] = RNG.standard_normal(width) * 0.1
    state[f"{name}.running_var"] = RNG.uniform(0.5, 1.5, width)


def _random_state():
    """Weights under the file's names, for all of EfficientNet-Lite0."""
    state = {"_conv_stem.weight": RNG.standard_normal((32, 3, 3, 3)) * 0.3}
    _norm(state, "_bn0", 32)
    for i, block in enumerate(_blocks(VARIANTS["efficientnet_lite0"])):
        inner, name = block.inputs * block.expansion, f"_blocks.{i}"
        if block.expansion > 1:
            shape = (inner, block.inputs, 1, 1)
            state[f"{name}._expand_conv.weight"] = RNG.standard_normal(shape) * 0.2
            _norm(state, f"{name}._bn0", inner)
        shape = (inner, 1, block.kernel, block.kernel)
        state[f"{name}._depthwise_conv.weight"] = RNG.standard_normal(shape) * 0.3
        _norm(state, f"{name}._bn1", inner)
        shape = (block.filters, inner, 1, 1)
        state[f"{name}._project_conv.weight"] = RNG.standard_normal(shape) * 0.1
        _norm(state, f"{name}._bn2", block.filters)
    state["_conv_head.weight"] = RNG.standard_normal((1280, 320, 1, 1)) * 0.1
    _norm(state, "_bn1", 1280)
    state["_fc.weight"] = RNG.standard_normal((1000, 1280)) * 0.05
    state["_fc.bias"] = RNG.standard_normal(1000)
    return {name: values.astype(np.float32) for name, values in state.items()}


def _unfolded(state, pictures):
    """The network written out, with batch normalization as a layer of its own."""

    def norm(x, name):
        scale = state[f"{name}.weight"] / np.sqrt(state[f"{name}.running_var"] + 1e-3)
        return (x - state[f"{name}.running_mean"]) * scale + state[f"{name}.bias"]

    def conv(x, name, stride=1):
        kernel = state[f"{name}.weight"].transpose(2, 3, 1, 0)
        return tf.nn.conv2d(x, kernel, stride, "SAME")

    x = tf.nn.relu6(norm(conv(pictures, "_conv_stem", 2), "_bn0"))
    for i, block in enumerate(_blocks(VARIANTS["efficientnet_lite0"])):
        name, inputs = f"_blocks.{i}", x
        if block.expansion > 1:
            x = tf.nn.relu6(norm(conv(x, f"{name}._expand_conv"), f"{name}._bn0"))
        kernel = state[f"{name}._depthwise_conv.weight"].transpose(2, 3, 0, 1)
        strides = [1, block.stride, block.stride, 1]
        x = tf.nn.depthwise_conv2d(x, kernel, strides, "SAME")
        x = tf.nn.relu6(norm(x, f"{name}._bn1"))
        x = norm(conv(x, f"{name}._project_conv"), f"{name}._bn2")
        if block.stride == 1 and block.inputs == block.filters:
            x = x + inputs
    x = tf.nn.relu6(norm(conv(x, "_conv_head"), "_bn1"))
    x = tf.reduce_mean(x, axis=(1, 2))
    return x @ state["_fc.weight"].T + state["_fc.bias"]


def test_folded_efficientnet_computes_what_the_file_s_network_does(writer, tmp_path):
    state = _random_state()
    path = write_legacy(
        writer, tmp_path / "lite0.pth", {name: tensor(v) for name, v in state.items()}
    )
    model = load_efficientnet_lite("efficientnet_lite0", path, image_size=64, top=True)
    pictures = RNG.uniform(-1, 1, (2, 64, 64, 3)).astype(np.float32)
    np.testing.assert_allclose(model(pictures), _unfolded(state, pictures), rtol=2e-3, atol=2e-3)
    with pytest.raises(CheckpointError, match="not the weights of efficientnet_lite2"):
        load_efficientnet_lite("efficientnet_lite2", path, image_size=64)
    backbone = load_backbone("efficientnet_lite0", path, 64)
    assert backbone.description["weights"]["file"] == "lite0.pth"
    features = backbone.features(tf.cast((pictures * 128 + 127), tf.float32))
    assert features.shape == (2, 1280)


@pytest.mark.parametrize(
    ("variant", "parameters", "size"),
    [
        ("efficientnet_lite0", 4_652_008, 224),
        ("efficientnet_lite1", 5_416_680, 240),
        ("efficientnet_lite2", 6_092_072, 260),
    ],
)
def test_variants_have_the_published_numbers_of_parameters(variant, parameters, size):
    """The published counts have two numbers per normalized channel; folded it is one."""
    model = efficientnet_lite(variant, top=True)
    channels = sum(
        layer.bias.shape[0] for layer in model.layers if layer.weights and layer.name != "logits"
    )
    assert model.count_params() + channels == parameters
    assert model.input_shape == (None, size, size, 3)


def test_unknown_variants_and_backbones_are_named():
    with pytest.raises(ValueError, match="variant must be one of efficientnet_lite0"):
        efficientnet_lite("efficientnet_lite9")
    with pytest.raises(BackboneError, match="neither efficientnet_lite0"):
        load_backbone("resnet9000")
    with pytest.raises(TypeError, match="name must be the name or path of a backbone, got None"):
        load_backbone(None)
    with pytest.raises(BackboneError, match="Install the package"):
        load_backbone("efficientnet_lite1")
    with pytest.raises(BackboneError, match="has no 'NoSuchNet'"):
        load_backbone("applications:NoSuchNet")


def test_keras_files_saved_models_and_applications_become_backbones(tmp_path):
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(5, 3)])
    model.save(tmp_path / "net.keras")
    model.export(tmp_path / "served", verbose=False)
    pictures = RNG.integers(0, 255, (2, 8, 8, 3)).astype(np.uint8)
    expected = tf.reduce_mean(model(pictures.astype(np.float32)), axis=(1, 2))
    stored = load_backbone(str(tmp_path / "net.keras"))
    served = load_backbone(str(tmp_path / "served"), image_size=8)
    for backbone in (stored, served):
        np.testing.assert_allclose(backbone.features(pictures), expected, rtol=1e-5, atol=1e-4)
        assert len(backbone.description["weights"]["sha256"]) == 64
    with pytest.raises(BackboneError, match="only pictures of 8 px"):
        load_backbone(str(tmp_path / "net.keras"), image_size=16)
    with pytest.raises(BackboneError, match="give image_size"):
        load_backbone(str(tmp_path / "served"))
    with pytest.raises(BackboneError, match=r"served: does not take RGB pictures \[B, 9, 9, 3\]"):
        load_backbone(str(tmp_path / "served"), image_size=9)
    keras.Sequential([keras.Input((7,)), keras.layers.Dense(2)]).save(tmp_path / "rows.keras")
    with pytest.raises(BackboneError, match=r"does not take RGB pictures \[B, 7, 7, 3\]"):
        load_backbone(str(tmp_path / "rows.keras"))
    (tmp_path / "bad.keras").write_bytes(b"nothing")
    with pytest.raises(BackboneError, match="not a Keras model"):
        load_backbone(str(tmp_path / "bad.keras"))

    network = keras.applications.MobileNetV2(
        include_top=False, weights=None, pooling="avg", input_shape=(32, 32, 3), alpha=1.0
    )
    network.save_weights(tmp_path / "mobile.weights.h5")
    found = load_backbone("applications:MobileNetV2", tmp_path / "mobile.weights.h5", 32)
    scaled = RNG.integers(0, 255, (1, 32, 32, 3)).astype(np.float32)
    np.testing.assert_allclose(
        found.features(scaled), network(scaled / 127.5 - 1), rtol=1e-4, atol=1e-5
    )


def test_other_weights_of_the_same_graph_are_another_saved_model(tmp_path):
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(5, 3)])
    model.export(tmp_path / "served", verbose=False)
    model.layers[0].bias.assign([1.0] * 5)
    model.export(tmp_path / "other", verbose=False)

    def weights():
        return load_backbone(str(tmp_path / "served"), image_size=8).description["weights"]

    first = weights()
    assert weights() == first
    shutil.copytree(tmp_path / "other/variables", tmp_path / "served/variables", dirs_exist_ok=True)
    assert weights()["file"] == first["file"] and weights()["sha256"] != first["sha256"]


def test_hub_presets_from_a_folder(tmp_path):
    import keras_hub

    vit = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=8, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=8
    )
    converter = keras_hub.layers.ViTImageConverter(
        image_size=(16, 16), scale=1 / 127.5, offset=-1.0
    )
    vit.save_to_preset(str(tmp_path))
    converter.save_to_preset(str(tmp_path))
    pictures = RNG.integers(0, 255, (2, 16, 16, 3)).astype(np.float32)
    expected = tf.reduce_mean(vit(pictures / 127.5 - 1), axis=1)
    for prefix in ("keras_hub", "keras_nlp"):
        found = load_backbone(f"{prefix}:{tmp_path}").features(pictures)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    before = load_backbone(f"keras_hub:{tmp_path}").description["weights"]
    vit.set_weights([2 * weight for weight in vit.get_weights()])
    vit.save_weights(tmp_path / "model.weights.h5")
    after = load_backbone(f"keras_hub:{tmp_path}").description["weights"]
    assert before["file"] == after["file"] and before["sha256"] != after["sha256"]


def test_pictures_are_resized_and_outputs_pooled():
    pictures = np.full((1, 4, 4, 3), 200, np.uint8)
    expected = np.full((1, 8, 8, 3), 200.0)
    np.testing.assert_allclose(resized(tf.constant(pictures), 8), expected, rtol=1e-6)
    assert resized(tf.constant(pictures), 4).dtype == tf.float32
    tokens = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    np.testing.assert_allclose(pooled(tokens), tokens.mean(axis=1))
    np.testing.assert_allclose(pooled({"x": tokens, "pooled_output": tokens[:, 0]}), tokens[:, 0])
