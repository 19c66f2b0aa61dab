"""Any Keras model with its report: whole or not at all, and the same answers when served."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.export import REPORT_FILE, export_with_report, read_report

REPORT = {"epsilon": 1.5, "delta": 1e-6, "adjacency": "add-or-remove-one"}


def small_model():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def test_i1_a_reloaded_model_exports_and_serves_what_it_predicts(tmp_path):
    small_model().save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    path = export_with_report(model, tmp_path / "served", REPORT)
    assert path == tmp_path / "served"
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    loaded = tf.saved_model.load(str(path))
    served = loaded.serve(x)
    np.testing.assert_allclose(served, model.predict(x, verbose=0), atol=1e-6)
    again = keras.layers.TFSMLayer(path, call_endpoint="serve")  # I5: the supported way back
    np.testing.assert_allclose(again(x), served, atol=1e-6)


def test_i8_the_report_is_stored_as_it_is(tmp_path):
    report = {**REPORT, "epsilon": float("inf"), "versions": {"tensorflow": tf.__version__}}
    export_with_report(small_model(), tmp_path / "served", report)
    assert read_report(tmp_path / "served") == report
    assert json.loads((tmp_path / "served" / REPORT_FILE).read_text()) == report


def test_an_export_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "deep" / "served"
    export_with_report(small_model(), path, REPORT)
    (path / "left_over").touch()
    export_with_report(small_model(), path, {**REPORT, "epsilon": 2.0})
    assert read_report(path)["epsilon"] == 2.0
    assert not (path / "left_over").exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["served"]


def test_a_folder_that_is_no_bundle_is_left_alone(tmp_path):
    (tmp_path / "precious.txt").touch()
    with pytest.raises(FileExistsError, match="is not a SavedModel"):
        export_with_report(small_model(), tmp_path, REPORT)
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious.txt"]


def test_a_failed_export_keeps_the_one_before(tmp_path):
    path = tmp_path / "served"
    export_with_report(small_model(), path, REPORT)
    with pytest.raises(TypeError):
        export_with_report(small_model(), path, {"epsilon": object()})
    with pytest.raises(ValueError):
        export_with_report(keras.Sequential([keras.layers.Dense(2)]), path, {"epsilon": 9.0})
    assert read_report(path) == REPORT
    assert [entry.name for entry in tmp_path.iterdir()] == ["served"]
