"""What holds of the captioner whatever its weights are."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.captioner.tiny import tiny_config, tiny_inputs, tiny_model
from tfdp.captioner import Captioner, CaptionerConfig


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def leaf_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    children = layer._flatten_layers(include_self=False, recursive=False)
    return [leaf for child in children for leaf in leaf_layers(child)] or [layer]


def test_trained_weights_sit_only_in_layers_that_clipping_knows(model):
    known = (keras.layers.Dense, keras.layers.Embedding, keras.layers.LayerNormalization)
    trained = [leaf for leaf in leaf_layers(model) if leaf.trainable_weights]
    assert all(type(leaf) in known for leaf in trained)
    held = sum(len(leaf.trainable_weights) for leaf in trained)
    assert held == len(model.trainable_weights)


def test_tables_and_vectors_stay_frozen_when_everything_is_made_trainable():
    model = tiny_model()
    model.trainable = True
    assert sorted(w.path.split("/", 1)[1] for w in model.non_trainable_weights) == [
        "decoder/positions/positions",
        "decoder/positions/type",
        "encoder/class_token/token",
        "encoder/positions/positions",
        "encoder/positions/type",
        "memory_positions/positions",
        "memory_positions/type",
    ]


def test_initialisation_is_the_reference_s():
    model = tiny_model(encoder_width=64, decoder_width=64, decoder_heads=4, vocab_size=500)
    for weight in model.trainable_weights:
        value = np.asarray(weight)
        if weight.name == "kernel":
            limit = np.sqrt(6 / sum(value.shape))
            assert np.abs(value).max() <= limit
            # 6 standard errors of the variance of a uniform draw (false alarm < 1e-8).
            assert value.var() == pytest.approx(limit**2 / 3, rel=6 * np.sqrt(0.8 / value.size))
        elif weight.name == "embeddings":
            assert value.std() == pytest.approx(1.0, rel=6 / np.sqrt(2 * value.size))
        else:
            np.testing.assert_array_equal(value, 1.0 if weight.name == "gamma" else 0.0)
    vectors = [w for w in model.non_trainable_weights if w.name != "positions"]
    drawn = np.concatenate([np.asarray(w) for w in vectors])
    assert drawn.std() == pytest.approx(0.02, rel=6 / np.sqrt(2 * drawn.size))


def test_a_token_sees_only_itself_and_those_before(model):
    inputs = tiny_inputs(2)
    changed = {**inputs, "tokens": inputs["tokens"].copy()}
    changed["tokens"][:, 3] = inputs["tokens"][:, 3] % 9 + 1
    before, after = np.asarray(model(inputs)), np.asarray(model(changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before - after)[:, 3:].max(axis=-1) > 1e-4).all()


def test_padding_after_a_caption_changes_nothing_before_it(model):
    inputs = tiny_inputs(2)
    padded = {**inputs, "tokens": inputs["tokens"] * (np.arange(6) < 4)}
    short = {**inputs, "tokens": inputs["tokens"][:, :4]}
    np.testing.assert_allclose(model(padded)[:, :4], model(short), rtol=0, atol=1e-6)


def test_examples_do_not_mix_even_if_one_is_nan(model):
    inputs = tiny_inputs(3)
    spoilt = {**inputs, "image": inputs["image"].copy()}
    spoilt["image"][1] = np.nan
    clean, dirty = np.asarray(model(inputs)), np.asarray(model(spoilt))
    np.testing.assert_array_equal(clean[[0, 2]], dirty[[0, 2]])
    assert np.isnan(dirty[1]).all()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_give_the_eager_logits(model, jit_compile):
    inputs = tiny_inputs(3)
    compiled = tf.function(lambda x: model(x), jit_compile=jit_compile)
    np.testing.assert_allclose(compiled(inputs), model(inputs), rtol=0, atol=1e-5)


def test_graph_of_unknown_batch_size(model):
    shapes = {name: tf.TensorSpec(s.shape, s.dtype) for name, s in model.input_signature.items()}
    graph = tf.function(lambda x: model(x), input_signature=[shapes])
    for batch in (1, 4):
        inputs = tiny_inputs(batch)
        np.testing.assert_allclose(graph(inputs), model(inputs), rtol=0, atol=1e-5)


def test_vectorized_over_examples_without_a_loop(model):
    inputs = tiny_inputs(3)

    def one(example):
        return model({name: part[None] for name, part in example.items()})[0]

    @tf.function
    def all_at_once(batch):
        return tf.vectorized_map(one, batch, fallback_to_while_loop=False)

    tensors = {name: tf.constant(part) for name, part in inputs.items()}
    np.testing.assert_allclose(all_at_once(tensors), model(inputs), rtol=0, atol=1e-5)


def test_stateless_call_uses_the_weights_that_it_is_given(model):
    keras.utils.set_random_seed(1)  # else the other model is the same one again
    inputs, other = tiny_inputs(2), tiny_model()
    logits, _ = model.stateless_call(
        [v.value for v in other.trainable_variables],
        [v.value for v in other.non_trainable_variables],
        inputs,
    )
    np.testing.assert_allclose(logits, other(inputs), rtol=0, atol=1e-6)
    assert np.abs(logits - model(inputs)).max() > 0.1


def test_mixed_bfloat16_follows_float32():
    model, half = tiny_model(), tiny_model("mixed_bfloat16")
    half.set_weights(model.get_weights())
    inputs = tiny_inputs(4)
    assert {v.dtype for v in half.weights} == {"float32"}
    assert half.features(inputs["image"]).dtype == tf.bfloat16
    logits = half(inputs)
    assert logits.dtype == tf.float32
    # bfloat16 keeps 8 bits: 0.4 % of the logits' size at each of some dozen roundings.
    np.testing.assert_allclose(logits, model(inputs), rtol=0, atol=0.1)
    assert np.abs(logits - model(inputs)).max() > 0


def test_attention_weights_are_taken_in_float32_under_bfloat16(monkeypatch):
    seen, softmax = set(), keras.ops.softmax
    monkeypatch.setattr(keras.ops, "softmax", lambda x, axis: seen.add(x.dtype) or softmax(x, axis))
    tiny_model("mixed_bfloat16")(tiny_inputs(1))
    assert seen == {tf.float32}


def test_part_of_a_functional_model(model):
    size = model.config.image_size
    inputs = {
        "image": keras.Input((size, size, 3), name="image"),
        "tokens": keras.Input((6,), dtype="int32", name="tokens"),
    }
    functional = keras.Model(inputs, model(inputs))
    batch = tiny_inputs(2)
    np.testing.assert_allclose(functional(batch), model(batch), rtol=0, atol=1e-6)


def test_pre_norm_leaves_the_stream_alone_where_branches_are_zero():
    inputs = tiny_inputs(2)
    for norm, untouched in (("pre", True), ("post", False)):
        block = tiny_model(decoder_norm=norm).decoder.blocks[0]
        for branch in (block.self_attention, block.cross_attention, block.mlp):
            kernel = branch.output_projection.kernel
            kernel.assign(np.zeros(kernel.shape))
        x = 3 + np.random.default_rng(0).normal(size=(2, 6, 12)).astype(np.float32)
        y = block(x, np.ones((2, 5, 12), np.float32), None)
        assert np.allclose(y, x) == untouched
        assert np.allclose(np.mean(y, axis=-1), 0, atol=1e-5) != untouched
    assert not np.allclose(tiny_model(decoder_norm="pre")(inputs), tiny_model()(inputs))


def test_trains_with_plain_keras():
    model = tiny_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(3e-2), loss, run_eagerly=True)
    inputs = tiny_inputs(8)
    targets = np.roll(inputs["tokens"], -1, axis=1)
    history = model.fit(inputs, targets, epochs=8, verbose=0).history["loss"]
    assert history[-1] < 0.6 * history[0]


def test_saved_and_loaded_in_keras_format(tmp_path):
    model, inputs = tiny_model(decoder_norm="pre"), tiny_inputs(2)
    model.save(tmp_path / "captioner.keras")
    loaded = keras.models.load_model(tmp_path / "captioner.keras")
    assert isinstance(loaded, Captioner)
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    np.testing.assert_array_equal(loaded.generate(inputs["image"]), model.generate(inputs["image"]))


def test_weights_file_refills_another_model(tmp_path):
    model, other, inputs = tiny_model(), tiny_model(), tiny_inputs(2)
    model.save_weights(tmp_path / "captioner.weights.h5")
    other.load_weights(tmp_path / "captioner.weights.h5")
    np.testing.assert_array_equal(other(inputs), model(inputs))


def test_config_round_trip_keeps_name_and_precision():
    model = Captioner(tiny_config(), name="mine", dtype="mixed_bfloat16")
    twin = Captioner.from_config(model.get_config())
    assert (twin.name, twin.config) == ("mine", model.config)
    assert twin.decoder.head.compute_dtype == "bfloat16"


def test_exported_for_tensorflow_alone_even_after_use(tmp_path):
    model, inputs = tiny_model(), tiny_inputs(3)
    model.generate(inputs["image"])
    model.score_captions(inputs["image"], inputs["tokens"])
    model.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_allclose(served.serve(inputs), model(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros((2, 8, 8, 3), np.float32)}, r"images must be \[B, 16, 16, 3\]"),
        ({"image": np.zeros((2, 16, 16, 3), np.uint8)}, "normalized floats, got .*uint8"),
        ({"tokens": np.zeros((2, 8), np.int32)}, "8 ids long, the model's max_length is 7"),
        ({"tokens": np.zeros((2, 6), np.float32)}, "tokens must be integer ids"),
        ({"tokens": np.zeros((2, 6, 1), np.int32)}, "tokens must have 2 axes"),
    ],
)
def test_wrong_inputs_are_named(model, change, message):
    with pytest.raises(ValueError, match=message):
        model({**tiny_inputs(2), **change})


def test_missing_input_is_named(model):
    with pytest.raises(ValueError, match='dictionary with "image" and "tokens"'):
        model({"image": tiny_inputs(2)["image"]})


def test_settings_must_be_a_captioner_config():
    with pytest.raises(TypeError, match="config must be a CaptionerConfig, got dict"):
        Captioner({"image_size": 16})


def test_default_settings_are_dpcap_base():
    assert CaptionerConfig() == CaptionerConfig.dpcap("base")
