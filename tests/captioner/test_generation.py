"""Captions by greedy and beam search are those that plain arithmetic over the logits gives."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.captioner.tiny import tiny_inputs, tiny_model


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(7)
    model = tiny_model()
    for kernel in (model.bridge.kernel, model.decoder.head.kernel):
        kernel.assign(5.0 * kernel.value)  # makes captions differ between pictures
    return model


@pytest.fixture(scope="module")
def images():
    return tiny_inputs(4)["image"]


def log_probs(model, images, ids) -> np.ndarray:
    """Log-probabilities of the token after each of some equally long ids, no cache: [B, V]."""
    ids = np.asarray(ids, np.int32)
    padding = ((0, 0), (0, model.config.max_length - ids.shape[1]))
    logits = model({"image": images, "tokens": np.pad(ids, padding)})
    return np.asarray(keras.ops.log_softmax(logits))[:, ids.shape[1] - 1]


def greedy(model, images, start, length) -> np.ndarray:
    ids = np.tile(np.int32(start), (len(images), 1))
    while ids.shape[1] < length:
        ended = (ids[:, len(start) :] == model.config.end_id).any(axis=1)
        likeliest = log_probs(model, images, ids).argmax(axis=1)
        ids = np.c_[ids, np.where(ended, 0, likeliest)]
    return ids


@pytest.mark.parametrize("prompt", [None, [1, 5, 9], [1, 2]])
def test_greedy_takes_the_likeliest_token_each_time(model, images, prompt):
    ids = np.asarray(model.generate(images, prompt=prompt))
    np.testing.assert_array_equal(ids, greedy(model, images, prompt or [1], 7))
    assert ids.dtype == np.int32
    assert len({tuple(row) for row in ids}) > 1


def test_beam_wide_enough_finds_the_likeliest_caption_of_all(images):
    model = tiny_model(vocab_size=5, max_length=4)
    ids = np.asarray(model.generate(images, beam_width=25))
    captions = np.array(list(complete_captions()))
    for image, row in zip(images, ids, strict=True):
        tiled = np.repeat(image[None], len(captions), axis=0)
        steps = [log_probs(model, tiled, captions[:, :i]) for i in (1, 2, 3)]
        scores = [
            sum(steps[i - 1][c, ids[i]] for i in range(1, last_real(ids) + 1))
            for c, ids in enumerate(captions)
        ]
        assert row.tolist() == captions[np.argmax(scores)].tolist()


def complete_captions():
    """Every caption of 4 ids over 5 tokens: start, tokens, end and padding if it ends early."""
    for tail in itertools.product(range(5), repeat=3):
        if 2 not in tail or not any(tail[tail.index(2) + 1 :]):
            yield [1, *tail]


def last_real(caption: np.ndarray) -> int:
    """Where the caption ends, by its end id or by running out of room."""
    ends = np.flatnonzero(caption == 2)
    return int(ends[0]) if len(ends) else len(caption) - 1


def test_beam_of_width_two_is_the_search_by_hand(model, images):
    ids = np.asarray(model.generate(images, max_length=6, beam_width=2))
    for image, row in zip(images, ids, strict=True):
        assert row.tolist() == beam_by_hand(model, image, width=2, length=6)


def beam_by_hand(model, image, width, length) -> list[int]:
    beams = [(0.0, [1])]
    for _ in range(length - 1):
        longer = []
        tiled = np.repeat(image[None], len(beams), axis=0)
        steps = log_probs(model, tiled, [ids for _, ids in beams])
        for (total, ids), step in zip(beams, steps, strict=True):
            if 2 in ids:
                longer.append((total, [*ids, 0]))
            else:
                longer += [(total + p, [*ids, i]) for i, p in enumerate(step)]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    return beams[0][1]


def test_nothing_but_padding_follows_the_end(model, images):
    bias = model.decoder.head.bias
    before = bias.numpy()
    bias.assign(before + 3.0 * (np.arange(11) == 2))
    try:
        for width in (1, 3):
            ids = np.asarray(model.generate(images, beam_width=width))
            ended = np.cumsum(ids == 2, axis=1) - (ids == 2) > 0
            assert ended.any()
            assert not ids[ended].any()
    finally:
        bias.assign(before)


def test_from_a_saved_model(images, tmp_path):
    model = tiny_model(decoder_depth=1)
    expected = np.asarray(model.generate(images, 6))
    assert expected.shape == (4, 6)
    module = tf.Module()
    module.model = model
    module.caption = tf.function(
        lambda x: model.generate(x, 6),
        input_signature=[tf.TensorSpec([None, 16, 16, 3], tf.float32)],
    )
    tf.saved_model.save(module, tmp_path, signatures=module.caption)
    loaded = tf.saved_model.load(tmp_path)
    for batch in (1, 4):
        np.testing.assert_array_equal(loaded.caption(images[:batch]), expected[:batch])


def test_under_xla(images):
    model = tiny_model(decoder_depth=1)
    xla = tf.function(lambda x: model.generate(x, 6, 3), jit_compile=True)
    np.testing.assert_array_equal(xla(images), model.generate(images, 6, 3))


def test_new_weights_and_batch_sizes_are_seen_by_later_calls(images):
    model, other = tiny_model(decoder_depth=1), tiny_model(decoder_depth=1)
    model.generate(images)
    model.set_weights(other.get_weights())
    np.testing.assert_array_equal(model.generate(images[:3]), other.generate(images[:3]))


@pytest.mark.parametrize("width", [1, 3])
def test_a_picture_is_encoded_once(images, width, monkeypatch):
    model, calls = tiny_model(), []
    encode = type(model.encoder).call
    monkeypatch.setattr(
        type(model.encoder), "call", lambda self, x: calls.append(x.shape[0]) or encode(self, x)
    )
    tf.config.run_functions_eagerly(True)
    try:
        model.generate(images, beam_width=width)
    finally:
        tf.config.run_functions_eagerly(False)
    assert calls == [4]


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
@pytest.mark.parametrize("width", [1, 2])
def test_runs_in_every_precision(images, dtype, width):
    ids = np.asarray(tiny_model(dtype).generate(images, beam_width=width))
    assert ids.shape == (4, 7)
    assert (ids[:, 0] == 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_width": 0}, "beam_width must be a whole number of at least 1, got 0"),
        ({"max_length": 8}, "max_length must be between 2 and the model's 7, got 8"),
        ({"max_length": 1}, "max_length must be between 2 and the model's 7, got 1"),
        ({"prompt": []}, "prompt must hold between 1 and max_length - 1 = 6 ids, got 0"),
        ({"prompt": [1] * 7}, "prompt must hold between 1 and .* 6 ids, got 7"),
        ({"prompt": [1, 11]}, r"prompt must hold ids below 11, got \(1, 11\)"),
        ({"prompt": [[1]]}, "prompt must hold ids below 11"),
    ],
)
def test_impossible_arguments(model, images, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.generate(images, **arguments)


@pytest.mark.parametrize("name", ["beam_width", "max_length"])
def test_arguments_of_the_wrong_kind(model, images, name):
    with pytest.raises(TypeError, match=f"{name} must be a whole number.*got 2.5"):
        model.generate(images, **{name: 2.5})


def test_a_prompt_of_one_id(model, images):
    one, same = (model.generate(images, prompt=prompt) for prompt in (1, [1]))
    np.testing.assert_array_equal(one, same)
