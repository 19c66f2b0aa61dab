"""The captioner with the reference's weights gives the reference's numbers."""

import keras
import numpy as np
import pytest

from tests.captioner.fixture import (
    build_fixture_model,
    example_losses,
    inputs_and_targets,
    load_io,
    zero_shot_captions,
)

#: Largest absolute difference allowed, by the model's precision. A float32 rounding error in
#: the logits is ten times smaller than what a wrong LayerNorm epsilon does.
TOKENS_ATOL = {"float32": 1e-5, "float64": 1e-9}
LOGITS_ATOL = {"float32": 4e-6, "float64": 1e-9}


@pytest.fixture(scope="module", params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def model(dtype):
    return build_fixture_model(dtype=dtype)


def assert_matches(actual, name: str, atol: float, where=...) -> None:
    expected = load_io()[f"{name}_f64"]
    actual = keras.ops.convert_to_numpy(actual)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual[where], expected[where], rtol=0, atol=atol)


def test_encoder_tokens(model, dtype):
    images = keras.ops.convert_to_tensor(load_io()["images"])
    assert_matches(model.encoder(images), "encoder_out", TOKENS_ATOL[dtype])


def test_memory_and_features(model, dtype):
    images = load_io()["images"]
    assert_matches(model.encode(images), "linear_prob_out", TOKENS_ATOL[dtype])
    assert_matches(model.features(images), "probe_feature", TOKENS_ATOL[dtype])


def test_logits_losses_and_token_losses(model, dtype):
    inputs, targets = inputs_and_targets()
    logits = model(inputs)
    # Without a padding mask, as in the reference, even the logits at padding agree.
    assert_matches(logits, "logits", LOGITS_ATOL[dtype])
    token_nll, losses = example_losses(logits, targets)
    assert_matches(token_nll, "token_nll", LOGITS_ATOL[dtype])
    assert_matches(losses, "loss", LOGITS_ATOL[dtype])


def test_output_dtype_is_the_policy_s(model, dtype):
    assert keras.backend.standardize_dtype(model(inputs_and_targets()[0]).dtype) == dtype


def test_zero_shot_scores_and_winners(model, dtype):
    scores = model.score_captions(load_io()["images"], zero_shot_captions())
    assert_matches(scores, "zeroshot_mean_nll", LOGITS_ATOL[dtype])
    np.testing.assert_array_equal(np.argmin(scores, axis=1), load_io()["zeroshot_pred"])


def test_next_word_logits(model):
    io = load_io()
    tokens = np.tile(io["prompt_ids"], (len(io["images"]), 1))
    logits = model({"image": io["images"], "tokens": tokens})[:, -1]
    np.testing.assert_allclose(logits, io["next_word_logits"], rtol=0, atol=4e-6)


def test_greedy_captions(model):
    io = load_io()
    ids = keras.ops.convert_to_numpy(model.generate(io["images"]))
    for ours, theirs, length in zip(ids, io["caption_ids"], io["caption_len"], strict=True):
        # The reference ran past its text positions once; ours stops at the last of them.
        common = min(length, len(ours))
        np.testing.assert_array_equal(ours[:common], theirs[:common])
        assert not ours[common:].any()


def test_exact_position_tables(dtype):
    io, (inputs, targets) = load_io(), inputs_and_targets()
    model = build_fixture_model(exact_positions=True, dtype=dtype)
    images = keras.ops.convert_to_tensor(io["images"])
    # Of these only the loss is known in float64; the others are float32 on the other side.
    for actual, name, atol in (
        (model.encoder(images), "encoder_out", 1e-5),
        (model.encode(images), "linear_prob_out", 1e-5),
        (model(inputs), "logits", 4e-6),
    ):
        np.testing.assert_allclose(actual, io[f"exactpos/{name}"], rtol=0, atol=atol)
    losses = example_losses(model(inputs), targets)[1]
    assert_matches(losses, "exactpos/loss", LOGITS_ATOL[dtype])
