"""Synthetic inputs, and weights that let them through to the outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward

_SEED = 20210607
_PIXELS = 256


class _Draw(NamedTuple):
    """How one pair of batches is drawn.

    Attributes:
      low: Floating-point inputs are at least this.
      high: And less than this.
      whole: Whether they are rounded down, as pixels are.
      lesser_id: The least id. Any vocabulary has 0 and 1, but 0 may be masked.
      only_padding: Whether an example may hold zeros only, which often stand for padding.
    """

    low: float
    high: float
    whole: bool = False
    lesser_id: int = 0
    only_padding: bool = False


_DRAWS = (
    _Draw(0, 2),
    _Draw(0, 1, lesser_id=1),
    _Draw(-1, 2, only_padding=True),
    _Draw(0, _PIXELS, whole=True),
    _Draw(1, 2, lesser_id=1),
)
# A layer that draws random numbers may mix examples for some of them only.
_MORE_DRAWS = (_DRAWS[3], _DRAWS[1], _DRAWS[3], _DRAWS[2], _DRAWS[3], _DRAWS[1], _DRAWS[3])
# A weight all of whose entries are smaller than this hides what comes before it.
_FAINT = 1e-3
# How many words of a vocabulary text is drawn from.
_WORDS = 1000

Vocabularies = tuple[tuple[int | np.ndarray, ...], tuple[bytes, ...]]


def synthetic_pairs(
    batch: Batch, examples: Any = None, known: Vocabularies = ((2,), ()), random: bool = False
) -> Iterator[tuple[Batch, Batch]]:
    """Yields pairs of batches that differ in their first example only.

    Args:
      batch: Gives structure, shapes and dtypes.
      examples: Public (x, y) or (x, y, sample_weight) to use instead of synthetic inputs: at
        least two examples, which differ.
      known: What ids and words are drawn from; see ``vocabularies_of``.
      random: Whether to yield more pairs, for layers that mix only for some random numbers.
    """
    draws = _DRAWS + (_MORE_DRAWS if random else ())
    for index, draw in enumerate(draws):
        seed = tf.constant([1, 2 + index])
        if examples is not None:
            pair = _given(batch, examples)
            yield pair[0]._replace(seed=seed), pair[1]._replace(seed=seed)
            if not random:
                return
            continue
        ids, words = known
        pool = ids[index % len(ids)]
        one, other = (_drawn(batch, draw, index, pool, words, other=way) for way in (False, True))
        yield one._replace(seed=seed), other._replace(seed=seed)


def vocabularies_of(model: keras.Model, tables: Iterable[keras.layers.Embedding]) -> Vocabularies:
    """Returns the pools that ids are drawn from, in turn, and the words that text is drawn from.

    Ids are spread over the largest and the smallest table. For several inputs the largest may
    be too large; those ids read as NaN, and the next pool is tried.

    Args:
      model: Its layers that look up words are asked for them.
      tables: Its layers that look up ids.
    """
    sizes = {layer.input_dim for layer in tables if layer.input_dim > 1}
    pools: list[int | np.ndarray] = [*dict.fromkeys((max(sizes), min(sizes)))] if sizes else []
    words: list[bytes] = []
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.IntegerLookup):
            found = layer.get_vocabulary(include_special_tokens=False)
            pools.append(np.array([*found[:_WORDS], -2], "int64"))  # and one that it has not
        elif isinstance(layer, keras.layers.StringLookup | keras.layers.TextVectorization):
            found = layer.get_vocabulary(include_special_tokens=False)
            words += [word.encode() for word in found[:_WORDS]]
    texts = [b"a", b"b", *words, b"a b", b"b a a"]  # of unequal lengths, in words
    # Without tables, integers may well be pixels.
    return (*pools, 2) if pools else (2, _PIXELS), tuple(texts)


def values_of(forward: Forward) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns values of the trainable variables and of the others, to check a model with."""
    trainable, state = (
        [tf.convert_to_tensor(v.value) for v in variables]
        for variables in (forward.trainable, forward.state)
    )
    return _with_faint_weights_raised(trainable), state


def _with_faint_weights_raised(weights: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the weights, those that are all but zero replaced by noise.

    Layers that start out at zero, such as heads, LoRA factors and layer scales, would make
    outputs the same whatever happens before them.
    """
    return [_raised(value, seed) for seed, value in enumerate(weights)]


def _raised(value: tf.Tensor, seed: int) -> tf.Tensor:
    if tf.reduce_max(tf.abs(value)) >= _FAINT:
        return value
    deviation = 1 / math.sqrt(math.prod(value.shape[:-1])) if value.shape.rank > 1 else 0.1
    noise = tf.random.stateless_normal(value.shape, [_SEED, seed], stddev=deviation)
    return tf.cast(noise, value.dtype)


def _drawn(
    batch: Batch, draw: _Draw, index: int, pool: int | np.ndarray, words: tuple, *, other: bool
) -> Batch:
    """Draws examples of the batch's kind; ``other`` replaces the first.

    Numbers move by half of their range. Ids and words come from the lower end of their pools, and
    for ``other`` from the upper end, so that their averages differ too. Targets are classes, of
    which there may be two.
    """
    fields = (batch.x, batch.y, batch.sample_weight)
    count = _count_unlike_any_axis(fields)
    generator = np.random.default_rng([_SEED, index])

    def shares(leaf):
        found = generator.uniform(size=(count, *leaf.shape[1:]))
        if other:
            found[:1] = (found[:1] + 0.5) % 1
        return found

    def ends(leaf):
        found = generator.uniform(size=(count, *leaf.shape[1:]))
        found[:1] **= 4
        if other:
            found[:1] = np.nextafter(1, 0) - found[:1]
        return found

    def number(leaf, share):
        values = draw.low + (draw.high - draw.low) * share
        return _cast(np.floor(values) if draw.whole else values, leaf)

    def inputs(leaf):
        if leaf.dtype.is_floating or leaf.dtype.is_complex:
            return number(leaf, shares(leaf))
        share = ends(leaf)
        if leaf.dtype == tf.string:
            return tf.constant(np.array(words)[_places(share, len(words))], tf.string)
        if not leaf.dtype.is_integer:
            return _cast(share < 0.5, leaf)
        if isinstance(pool, np.ndarray):
            return _cast(pool[_places(share, len(pool))], leaf)
        ids = draw.lesser_id + _places(share, max(2, pool - draw.lesser_id))
        if not draw.lesser_id and not draw.only_padding:
            _leave_something_unmasked(ids)
        return _cast(ids, leaf)

    def targets(leaf):
        if leaf is None:
            return None
        share = shares(leaf)
        if leaf.dtype == tf.string:
            return tf.constant(np.where(share < 0.5, b"a", b"b"), tf.string)
        if leaf.dtype.is_floating or leaf.dtype.is_complex:
            return _cast(draw.low + min(draw.high - draw.low, 2) * share, leaf)
        return _cast(share < 0.5, leaf)

    x = keras.tree.map_structure(inputs, batch.x)
    y, sample_weight = keras.tree.map_structure(targets, (batch.y, batch.sample_weight))
    return Batch(x, y, sample_weight, tf.ones([count], tf.bool), tf.constant([1, 2]))


def _places(share: np.ndarray, count: int) -> np.ndarray:
    """Returns whole numbers below ``count``, by shares below 1."""
    return np.floor(share * count).astype("int64")


def _leave_something_unmasked(ids: np.ndarray) -> None:
    """Sets the first entry of examples of zeros only to 1: zero often stands for padding."""
    if ids.ndim > 1 and ids.size:
        flat = ids.reshape(len(ids), -1)
        flat[:, 0] += ~flat.any(axis=1)


def _cast(values: np.ndarray, leaf: Any) -> tf.Tensor:
    return tf.cast(tf.constant(values), leaf.dtype)


def _given(batch: Batch, examples: Any) -> tuple[Batch, Batch]:
    fields = (batch.x, batch.y, batch.sample_weight)
    if not isinstance(examples, list | tuple):
        raise TypeError(
            "public_examples must be (x, y) or (x, y, sample_weight), of examples that are not "
            f"private, got a {type(examples).__name__}."
        )
    given = tuple(examples)
    examples = (*given, *[None] * (3 - len(given)))
    try:
        keras.tree.assert_same_structure(*map(_with_absent_marked, (fields, examples)))
    except ValueError as error:
        raise ValueError(
            "public_examples must be (x, y), or (x, y, sample_weight) if there are weights, nested "
            f"like what the model is trained on, got {len(given)} parts."
        ) from error
    counts = {len(leaf) for leaf in keras.tree.flatten(examples) if leaf is not None}
    if len(counts) > 1:
        raise ValueError(
            "public_examples: all arrays must hold the same number of examples, got "
            f"{sorted(counts)}."
        )
    count = counts.pop()
    if count < 2:
        raise ValueError(f"public_examples holds {count} example(s): give two or more.")
    total = _count_unlike_any_axis(fields)
    order = [i % count for i in range(total)]

    def take(order):
        def examples_of(leaf, spec):
            return None if leaf is None else _cast(np.asarray(leaf)[order], spec)

        x, y, sample_weight = keras.tree.map_structure(examples_of, examples, fields)
        return Batch(x, y, sample_weight, tf.ones([total], tf.bool), tf.constant([1, 2]))

    return take(order), take([1, *order[1:]])


def _with_absent_marked(nested: Any) -> Any:
    """Returns the structure with parts that are not there of another shape than leaves."""
    return keras.tree.map_structure(lambda leaf: () if leaf is None else 0, nested)


def _count_unlike_any_axis(fields: Any) -> int:
    leaves = [leaf for leaf in keras.tree.flatten(fields) if leaf is not None]
    taken = {size for leaf in leaves for size in leaf.shape}
    return next(n for n in itertools.count(3) if n not in taken)
