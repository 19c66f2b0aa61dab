"""The captioner's bundle, served by a process that has TensorFlow and nothing of ours."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.captioner import (
    Captioner,
    CaptionerConfig,
    CaptionTokenizer,
    ImageTextSource,
    export_captioner,
)
from tfdp.export import read_report

SPECIAL = ["[PAD]", "[UNK]", "[START]", "[END]"]
PIECES = [*SPECIAL, "red", "green", "apple", "##s", "leaf", "-", "'", *"abcdefghijklm"]
REPORT = {"epsilon": 7.9, "delta": 1e-5, "accountant": "pld", "covers": ["weights"], "seed": None}
SIZE, LENGTH = 16, 10

SERVE = """
import json, sys
import numpy as np
import tensorflow as tf

before = set(sys.modules)
folder, *bundles = sys.argv[1:]
with np.load(f"{folder}/pictures.npz", allow_pickle=True) as file:
    batches = {name: tf.constant(file[name].tolist(), tf.string) for name in file}
found = {"signatures": {}}
for bundle in bundles:
    loaded = tf.saved_model.load(f"{folder}/{bundle}")
    found["signatures"][bundle] = sorted(loaded.signatures)
    for name, batch in batches.items():
        for signature, function in loaded.signatures.items():
            found[f"{bundle}/{name}/{signature}"] = {
                key: [v.decode() if isinstance(v, bytes) else v for v in value.numpy().tolist()]
                for key, value in function(image_bytes=batch).items()
            }
found["imported"] = sorted({name.split(".")[0] for name in sys.modules.keys() - before})
found["tfdp"] = "tfdp" in sys.modules
json.dump(found, open(f"{folder}/answers.json", "w"))
"""


def picture_files():
    """Ten pictures of several formats, channels and shapes."""
    generator = np.random.default_rng(0)
    pixels = [generator.integers(0, 256, (4, 6, 1), np.uint8) for _ in range(10)]
    pixels = [tf.constant(np.kron(p, np.ones((5, 3, 3), np.uint8))) for p in pixels]
    files = [tf.io.encode_png(p) for p in pixels[:4]] + [tf.io.encode_jpeg(p) for p in pixels[4:8]]
    grey = tf.io.encode_png(pixels[8][:, :, :1])
    transparent = tf.concat([pixels[9], pixels[9][:, :, :1]], axis=-1)
    return [file.numpy() for file in [*files, grey, tf.io.encode_png(transparent)]]


@pytest.fixture(scope="module")
def trained():
    """A small captioner with loud random weights, so that its captions differ."""
    config = CaptionerConfig(
        image_size=SIZE,
        patch_size=8,
        encoder_width=16,
        encoder_depth=1,
        encoder_heads=2,
        decoder_width=16,
        decoder_depth=1,
        decoder_heads=2,
        vocab_size=len(PIECES),
        max_length=LENGTH,
        start_id=2,
        end_id=3,
    )
    keras.utils.set_random_seed(0)
    model = Captioner(config)
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(0.5 * generator.normal(size=variable.shape).astype(np.float32))
    return model, CaptionTokenizer(PIECES)


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory):
    """What a bare process answers from the greedy and the beam bundle, and what we fed it."""
    folder = tmp_path_factory.mktemp("served")
    files = picture_files()
    damaged = [files[0], b"no picture", files[5][:60], b"", files[4], files[1][:40]]
    batches = {"good": files, "one": files[:1], "damaged": damaged, "none": []}
    as_objects = {name: np.array([*batch, None], object)[:-1] for name, batch in batches.items()}
    np.savez(folder / "pictures.npz", **as_objects)
    model, tokenizer = trained
    export_captioner(model, tokenizer, folder / "greedy", REPORT)
    export_captioner(model, tokenizer, folder / "beam", REPORT, max_length=5, beam_width=3)
    return SimpleNamespace(folder=folder, files=files)


@pytest.fixture
def answers(served, run_in_subprocess):
    path = served.folder / "answers.json"
    if not path.exists():
        run_in_subprocess(SERVE, str(served.folder), "greedy", "beam")
    return json.loads(path.read_text())


def expected(trained, files, **search):
    """Captions and features of our own model, for pictures prepared as in training."""
    model, tokenizer = trained
    source = ImageTextSource([(file, "-") for file in files], tokenizer, SIZE, LENGTH)
    images = source.images()
    captions = tokenizer.detokenize(model.generate(images, **search))
    return captions, np.array(model.features(images))


def test_i4_a_bare_tensorflow_process_captions_picture_bytes(trained, served, answers):
    captions, _ = expected(trained, served.files)
    assert len(set(captions)) > 3, "captions that differ, or a mix-up would pass"
    assert not answers["tfdp"]
    assert not {"keras", "keras_nlp", "keras_hub", "tensorflow_text"} & set(answers["imported"])
    assert answers["signatures"]["greedy"] == ["features", "serve", "serving_default"]
    assert answers["greedy/good/serve"] == {"captions": captions, "valid": [True] * len(captions)}
    assert answers["greedy/good/serving_default"] == answers["greedy/good/serve"]
    assert answers["greedy/one/serve"] == {"captions": captions[:1], "valid": [True]}


def test_features_are_the_models_own(trained, served, answers):
    found = answers["greedy/good/features"]
    np.testing.assert_allclose(found["features"], expected(trained, served.files)[1], atol=1e-5)
    assert found["valid"] == [True] * len(served.files)


def test_a_damaged_picture_leaves_the_rest_of_its_batch_alone(trained, served, answers):
    captions, features = expected(trained, [served.files[0], served.files[4]])
    found = answers["greedy/damaged/serve"]
    assert found["valid"] == [True, False, False, False, True, False]
    assert found["captions"] == [captions[0], "", "", "", captions[1], ""]
    rows = np.array(answers["greedy/damaged/features"]["features"])
    np.testing.assert_allclose(rows[[0, 4]], features, atol=1e-5)
    np.testing.assert_array_equal(rows[[1, 2, 3, 5]], 0)


def test_an_empty_batch_gets_an_empty_answer(answers):
    assert answers["greedy/none/serve"] == {"captions": [], "valid": []}
    assert answers["greedy/none/features"] == {"features": [], "valid": []}


def test_i7_beam_search_is_exported_within_its_length(trained, served, answers):
    beam, _ = expected(trained, served.files, max_length=5, beam_width=3)
    greedy, _ = expected(trained, served.files, max_length=5)
    assert beam != greedy
    assert answers["beam/good/serve"]["captions"] == beam
    # Five ids: the start and at most four pieces.
    assert max(len(caption.replace("'", " ").replace("-", " ").split()) for caption in beam) <= 4


def test_i8_the_report_in_the_bundle_is_the_training_report(served):
    path = served.folder / "greedy" / "assets" / "privacy_report.json"
    assert json.loads(path.read_text()) == read_report(served.folder / "greedy") == REPORT


def test_another_tokenizer_is_rejected(trained, tmp_path):
    model, _ = trained
    with pytest.raises(ValueError, match="vocabulary size 23, the model was built for 24"):
        export_captioner(model, CaptionTokenizer(PIECES[:-1]), tmp_path / "bundle", REPORT)
    moved = ["[PAD]", "[START]", "[UNK]", *PIECES[3:]]
    with pytest.raises(ValueError, match="start id 1, the model was built for 2"):
        export_captioner(model, CaptionTokenizer(moved), tmp_path / "bundle", REPORT)
    assert not list(tmp_path.iterdir())
