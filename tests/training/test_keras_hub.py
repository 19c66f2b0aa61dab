"""Models of KerasHub, whose compile and fit have signatures of their own."""

import keras_hub
import numpy as np
import pytest

import tfdp

ROWS, LENGTH, WORDS = 24, 6, 12


def classifier(preprocessor=None):
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=WORDS,
        num_layers=1,
        num_heads=1,
        hidden_dim=4,
        intermediate_dim=4,
        max_sequence_length=LENGTH,
        dropout=0,
    )
    return keras_hub.models.BertTextClassifier(backbone, 3, preprocessor)


def compiled(model, *metrics, **options):
    plan = tfdp.PrivacyPlan(ROWS, 8, 2, 1.0, noise_multiplier=1.0, delta=1e-3)
    model = tfdp.make_private(model)
    optimizer = tfdp.optimizers.DPSGD(0.1, privacy=plan)
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, None, *metrics, jit_compile=False, **options)
    return model


def test_a_task_trains_on_what_was_preprocessed():
    rng = np.random.default_rng(0)
    x = {"token_ids": rng.integers(WORDS, size=(ROWS, LENGTH))}
    x["segment_ids"], x["padding_mask"] = 0 * x["token_ids"], 0 * x["token_ids"] + 1
    model = compiled(classifier(), ["accuracy"])
    history = model.fit(x, rng.integers(3, size=ROWS), verbose=0, epochs=1, steps_per_epoch=2)
    assert model.ledger.steps == 2
    assert {"accuracy", "epsilon", "loss"} <= set(history.history)


def test_a_preprocessor_is_rejected_before_anything_is_spent():
    tokenizer = keras_hub.models.BertTokenizer(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "a"])
    model = compiled(classifier(keras_hub.models.BertTextClassifierPreprocessor(tokenizer, LENGTH)))
    with pytest.raises(ValueError, match="model.preprocessor = None"):
        model.fit(np.array(["a"] * ROWS), np.zeros(ROWS, "int32"), verbose=0)
    assert model.ledger.steps == 0
