"""Text made inside a graph is the tokenizer's own."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.captioner import CaptionTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[START]", "[END]"]
PIECES = [
    *SPECIAL,
    "red",
    "apple",
    "##s",
    "un",
    "##know",
    "##n",
    "'",
    "-",
    "é",
    "5",
    "$",
    "\\1",
    "##'",
]


@pytest.fixture
def tokenizer():
    return CaptionTokenizer(PIECES)


@pytest.mark.parametrize(
    "words, text",
    [
        ("[START] red apple ##s [END]", "red apples"),
        ("[START] un ##know ##n [UNK] [END] red red", "unknown [UNK]"),
        ("[START] red ' ##s - apple [PAD] 5 [PAD]", "red's-apple 5"),
        ("[START] ##s $ \\1 é", "##s $ \\1 é"),
        ("[END] red", ""),
        ("[PAD] [PAD]", ""),
    ],
)
def test_pieces_become_words(tokenizer, words, text):
    ids = [[PIECES.index(word) for word in words.split()]]
    assert tokenizer.detokenize_in_graph(tf.constant(ids))[0].numpy().decode() == text
    assert tokenizer.detokenize(ids) == [text]


def test_any_ids_give_the_tokenizers_text(tokenizer):
    ids = np.random.default_rng(0).integers(0, len(PIECES), size=(500, 9), dtype=np.int32)
    graph = tf.function(tokenizer.detokenize_in_graph)
    texts = [text.decode() for text in graph(tf.constant(ids)).numpy()]
    assert texts == tokenizer.detokenize(ids)
    assert graph(tf.zeros((0, 9), tf.int32)).shape == (0,)
