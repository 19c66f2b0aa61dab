"""Scores of captions are mean token losses, however they are batched."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.captioner.tiny import tiny_inputs, tiny_model

CAPTIONS = np.array([[1, 5, 2, 0, 0], [1, 3, 4, 6, 2], [1, 2, 0, 0, 0], [1, 0, 0, 9, 0]], np.int32)
TARGETS = [2, 4, 1, 3]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def images():
    return tiny_inputs(3)["image"]


def score(model, image, caption, targets) -> float:
    """The score of one caption by one plain call of the model."""
    tokens = caption[None, :-1]
    log_probs = keras.ops.log_softmax(model({"image": image[None], "tokens": tokens})[0])
    return -np.asarray(log_probs)[np.arange(targets), caption[1 : targets + 1]].mean()


@pytest.mark.parametrize("pairs_at_once", [1, 6, 9, 128])
def test_shared_captions_meet_every_picture(model, images, pairs_at_once):
    scores = model.score_captions(images, CAPTIONS, pairs_at_once)
    expected = [
        [score(model, image, c, n) for c, n in zip(CAPTIONS, TARGETS, strict=True)]
        for image in images
    ]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("pairs_at_once", [1, 6, 128])
def test_each_picture_s_own_captions(model, images, pairs_at_once):
    own = np.stack([CAPTIONS, CAPTIONS[::-1], CAPTIONS])
    scores = model.score_captions(images, own, pairs_at_once)
    shared = np.asarray(model.score_captions(images, CAPTIONS))
    expected = np.stack([shared[0], shared[1, ::-1], shared[2]])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)


def test_longer_padding_changes_nothing(model, images):
    padded = np.pad(CAPTIONS, ((0, 0), (0, 2)))
    np.testing.assert_allclose(
        model.score_captions(images, padded),
        model.score_captions(images, CAPTIONS),
        rtol=0,
        atol=2e-6,
    )


def test_inside_a_graph_of_unknown_sizes_and_under_xla(images):
    model = tiny_model(decoder_depth=1)
    expected = model.score_captions(images, CAPTIONS)
    graph = tf.function(
        model.score_captions,
        input_signature=[
            tf.TensorSpec([None, 16, 16, 3], tf.float32),
            tf.TensorSpec([None, None], tf.int32),
        ],
    )
    np.testing.assert_allclose(graph(images, CAPTIONS), expected, rtol=0, atol=2e-6)
    xla = tf.function(lambda x, ids: model.score_captions(x, ids, 7), jit_compile=True)
    np.testing.assert_allclose(xla(images, CAPTIONS), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (CAPTIONS[0], "token_ids must have 2 or 3 axes"),
        (CAPTIONS.astype(np.float32), "token_ids must be integer ids"),
        (np.ones((1, 8), np.int32), "token_ids are 8 ids long, the model's max_length is 7"),
        (np.array([[1, 2], [1, 0]]), r"caption \(1,\) has nothing after its first id"),
        (np.array([[1, 11]]), "token_ids must lie between 0 and 10"),
    ],
)
def test_wrong_captions_are_named(model, images, captions, message):
    with pytest.raises(ValueError, match=message):
        model.score_captions(images, captions)


def test_no_captions_and_no_pictures_give_empty_scores(model, images):
    assert model.score_captions(images, np.zeros((0, 5), np.int32)).shape == (3, 0)
    assert model.score_captions(images[:0], CAPTIONS).shape == (0, 4)


def test_pairs_at_once_must_be_positive(model, images):
    with pytest.raises(ValueError, match="pairs_at_once must be at least 1, got 0"):
        model.score_captions(images, CAPTIONS, 0)
