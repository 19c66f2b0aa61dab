"""Classifiers as one SavedModel: served without this library, with the report inside."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.transfer.tables import clusters
from tfdp.export import read_report
from tfdp.transfer import LastLayer
from tfdp.transfer.backbones import load_backbone

CLASSES, SIZE = 3, 8
NAMES = ["red", "green", "blue"]


def _pictures(count, seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count)
    noise = generator.integers(0, 60, (count, SIZE, SIZE, 3))
    return (noise + 150 * np.eye(3)[labels][:, None, None]).astype(np.uint8), labels


def _png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _pool():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(12, 3), keras.layers.GlobalAveragePooling2D()]
    return keras.Sequential([keras.Input((SIZE, SIZE, 3)), *layers])


@pytest.mark.parametrize("stored", ["keras", "saved_model"])
def test_backbone_and_head_serve_picture_files(tmp_path, stored, run_in_subprocess):
    if stored == "keras":
        _pool().save(tmp_path / "pool.keras")
        backbone = load_backbone(str(tmp_path / "pool.keras"))
    else:
        _pool().export(tmp_path / "pool", verbose=False)
        backbone = load_backbone(str(tmp_path / "pool"), image_size=SIZE)
    pixels, labels = _pictures(300, 0)
    head = LastLayer(CLASSES, num_examples=300, epsilon=8.0, method="one_step", seed=1)
    head.fit(backbone.features(tf.constant(pixels)).numpy(), labels)
    path = head.export(tmp_path / "served", backbone, NAMES)
    report = read_report(path)
    assert 7.9 < report["epsilon"] <= 8.0 and "counts" not in report and report["releases"]

    # Nobody asks for nothing; but a queue that is empty does not fail.
    served = tf.saved_model.load(str(path))
    empty = served.serve(tf.zeros([0], tf.string))
    assert empty["probabilities"].shape == (0, CLASSES) and empty["valid"].shape == (0,)

    new, _ = _pictures(6, 1)
    np.save(tmp_path / "pictures.npy", np.array([*map(_png, new), b"no picture"], object))
    code = """
    import sys, numpy as np, tensorflow as tf
    served = tf.saved_model.load(sys.argv[1])
    files = tf.constant(np.load(sys.argv[2], allow_pickle=True).tolist())
    found = served.serve(files)
    assert "tfdp" not in sys.modules
    print(found["valid"].numpy().tolist(), [n.decode() for n in found["class_name"].numpy()])
    np.save(sys.argv[2], found["probabilities"].numpy())
    """
    said = run_in_subprocess(code, str(path), str(tmp_path / "pictures.npy"))
    expected = head.predict(backbone.features(tf.constant(new)).numpy())
    names = [NAMES[label] for label in expected.argmax(axis=1)]
    assert f"{[True] * 6 + [False]} {[*names, '']}" in said
    probabilities = np.load(tmp_path / "pictures.npy")
    np.testing.assert_allclose(probabilities[:6], expected, atol=1e-4)
    assert not probabilities[6].any()


def test_a_head_alone_serves_features(tmp_path):
    x, y = clusters(200, 5, CLASSES)
    head = LastLayer(CLASSES, num_examples=200, epsilon=4.0, method="one_step").fit(x, y)
    served = tf.saved_model.load(str(head.export(tmp_path / "head")))
    np.testing.assert_allclose(served.serve(x[:4]), head.logits(x[:4]), atol=1e-5)
    assert read_report(tmp_path / "head")["epsilon"] == head.privacy_report()["epsilon"]


def test_names_are_as_many_as_classes(tmp_path):
    x, y = clusters(200, 12, CLASSES)
    head = LastLayer(CLASSES, num_examples=200, epsilon=4.0, method="one_step").fit(x, y)
    _pool().save(tmp_path / "pool.keras")
    with pytest.raises(ValueError, match="class_names must be 3 names, got 2"):
        head.export(tmp_path / "x", load_backbone(str(tmp_path / "pool.keras")), ["a", "b"])


def test_backbones_that_cannot_have_made_the_features_are_rejected(tmp_path):
    _pool().save(tmp_path / "pool.keras")
    features, labels = clusters(60, 5, CLASSES, seed=0)
    head = LastLayer(CLASSES, num_examples=60, epsilon=8.0, method="one_step", seed=1)
    head.fit(features, labels)
    for backbone in (_pool(), load_backbone(str(tmp_path / "pool.keras"))):
        with pytest.raises(ValueError, match="makes 12 features, but this head takes 5"):
            head.export(tmp_path / "served", backbone, NAMES)
    with pytest.raises(TypeError, match="backbone must be what .* got 'efficientnet_lite0'"):
        head.export(tmp_path / "served", "efficientnet_lite0", NAMES)
    assert not (tmp_path / "served").exists()
