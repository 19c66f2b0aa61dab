"""Captions as token ids, through keras-nlp's WordPiece."""

import os
import re
from collections.abc import Sequence
from typing import Any

import keras_nlp
import numpy as np
import tensorflow as tf

# Names of the special pieces: ours first, then BERT's.
_START = ("[START]", "[CLS]")
_END = ("[END]", "[SEP]")
_PAD = "[PAD]"
_UNKNOWN = "[UNK]"


class CaptionTokenizer:
    """Turns captions into padded token ids and back.

    The vocabulary must be public: pieces learned from the private captions would reveal them.
    It decides the ids, so a BERT `vocab.txt` gives BERT's: 101 begins, 102 ends, 0 pads.

    Attributes:
        vocabulary: The pieces; a piece's id is its place.
        pad_id: Id of the padding, always 0.
        unknown_id: Id of words that cannot be spelled with the pieces.
        start_id: Id that begins every caption.
        end_id: Id that ends every caption.
    """

    pad_id = 0

    def __init__(self, vocabulary: str | os.PathLike | Sequence[str], lowercase: bool = True):
        """Creates the tokenizer.

        Args:
            vocabulary: Pieces, or the path of a text file with one piece per line, in WordPiece
                notation. Must hold `[PAD]` first, `[UNK]`, and `[START]`, `[END]` or BERT's
                `[CLS]`, `[SEP]`.
            lowercase: Whether to lower-case captions and strip accents (uncased vocabularies).

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If a special piece is missing or a piece occurs twice.
        """
        self.vocabulary = _read(vocabulary)
        self.unknown_id = self._special_id((_UNKNOWN,))
        self.start_id = self._special_id(_START)
        self.end_id = self._special_id(_END)
        self._lowercase = lowercase
        self._pieces = keras_nlp.tokenizers.WordPieceTokenizer(
            vocabulary=self.vocabulary,
            lowercase=lowercase,
            strip_accents=lowercase,
            oov_token=_UNKNOWN,
        )

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, the special ones included."""
        return len(self.vocabulary)

    def __call__(self, captions: Any, max_length: int) -> tf.Tensor:
        """Returns ids, int32 `[M, max_length]`: start, pieces, end, padding."""
        return self.encode(captions, max_length)[0]

    def encode(self, captions: Any, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids and the length that each caption would need.

        Args:
            captions: Strings `[M]`. May be a tensor inside a `tf.data` map.
            max_length: Ids in a row, at least 3. A longer caption is cut; it keeps its end id.

        Returns:
            int32 `[M, max_length]`, and int64 `[M]`: ids of the whole caption with start and end,
            so that more than `max_length` means cut and 2 means empty.
        """
        if max_length < 3:
            raise ValueError(
                f"max_length must leave room for start, a piece and end: at least 3, "
                f"got {max_length}."
            )
        return self._encode(tf.convert_to_tensor(captions, tf.string), max_length)

    @tf.function(reduce_retracing=True)  # called eagerly, keras-nlp makes Python lists of tensors
    def _encode(self, captions: tf.Tensor, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
        pieces = self._pieces(captions)
        packer = keras_nlp.layers.StartEndPacker(
            sequence_length=max_length,
            start_value=self.start_id,
            end_value=self.end_id,
            pad_value=self.pad_id,
        )
        ids = tf.ensure_shape(packer(pieces), [captions.shape[0], max_length])
        return ids, tf.cast(pieces.row_lengths(), tf.int64) + 2

    def detokenize(self, ids: Any) -> list[str]:
        """Returns the text of each row of ids `[M, L]`, up to the first end id."""
        special = {self.pad_id, self.start_id, self.end_id}
        return [
            _join([self.vocabulary[i] for i in _until(row, self.end_id) if i not in special])
            for row in np.asarray(ids).tolist()
        ]

    def detokenize_in_graph(self, ids: tf.Tensor) -> tf.Tensor:
        """The same text as `detokenize`, by TensorFlow's own string ops.

        Args:
            ids: int `[B, L]`.

        Returns:
            string `[B]`. The vocabulary becomes a constant of the graph, which then runs without
            a tokenizer library.
        """
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=1) > 0
        kept = ~ended & (ids != self.pad_id) & (ids != self.start_id)
        pieces = tf.gather(tf.constant(self.vocabulary), ids)
        text = tf.strings.reduce_join(tf.ragged.boolean_mask(pieces, kept), axis=1, separator=" ")
        text = tf.strings.regex_replace(text, " ##", "")
        return tf.strings.regex_replace(text, " ?(['-]) ?", r"\1")

    def save(self, path: str | os.PathLike) -> None:
        """Writes the vocabulary, one piece per line; the constructor reads it back."""
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{piece}\n" for piece in self.vocabulary)

    def _special_id(self, names: tuple[str, ...]) -> int:
        for name in names:
            if name in self.vocabulary:
                return self.vocabulary.index(name)
        raise ValueError(f"vocabulary must hold the piece {' or '.join(names)}.")


def _read(vocabulary: str | os.PathLike | Sequence[str]) -> list[str]:
    """Returns the pieces, checked."""
    if isinstance(vocabulary, str | os.PathLike):
        if not os.path.isfile(vocabulary):
            raise FileNotFoundError(f"vocabulary file not found: {os.fspath(vocabulary)}")
        with open(vocabulary, encoding="utf-8") as file:
            vocabulary = [line.rstrip("\r\n") for line in file]
    pieces = list(vocabulary)
    if not pieces or pieces[0] != _PAD:
        raise ValueError(f"vocabulary must start with {_PAD}: id 0 is the padding.")
    if len(set(pieces)) != len(pieces):
        twice = next(piece for i, piece in enumerate(pieces) if piece in pieces[:i])
        raise ValueError(f"vocabulary holds the piece {twice!r} twice.")
    return pieces


def _until(row: list[int], end: int) -> list[int]:
    return row[: row.index(end)] if end in row else row


def _join(pieces: list[str]) -> str:
    """Joins pieces into words, and words with the apostrophes and hyphens between them."""
    text = " ".join(pieces).replace(" ##", "")
    return re.sub(r" ?(['-]) ?", r"\1", text)
