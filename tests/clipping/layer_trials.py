"""Tries whether a layer mixes the examples of a batch, by itself and as tfdp trains it.

``layer_table.csv`` has a line for every layer, and more where arguments matter:

    library, layer: the layer under its public name.
    made: how it is made, from the names of the library.
    shapes: of its inputs x, y, z, without the batch axis; "6<9" are whole numbers below 9.
    called: how it is called with them.
    trained: "no" if it is only tried by itself, because to train it takes long. Recurrent layers
        are trained in tests of their own.
    verdict: "safe" if it does not mix examples; "mapped" if it does, and not where tfdp trains
        it; "rejected" if tfdp does not train it; "fails" if it cannot run in a model at all.
    note: why.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_cv
import keras_hub
import numpy as np
import tensorflow as tf

from tfdp.clipping import Batch, ClippedGradient, UnsupportedLayerError, per_example_loss

LIBRARIES = {"keras": keras, "keras_cv": keras_cv, "keras_hub": keras_hub}
TABLE = Path(__file__).parent / "layer_table.csv"
EXAMPLES = 4
CLIP_NORM = 1e-3
# Where inputs are drawn from; the last are whole numbers, as pixels are.
RANGES = ((-1, 2), (0, 1), (0, 256))
SEEDS = 2
_TOGETHER = 12
# What layers raise that cannot be made, or called, in a model of tensors.
_FAILURES = (
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A line of the table."""

    library: str
    layer: str
    made: str
    shapes: str
    called: str
    trained: str
    verdict: str
    note: str

    def names(self) -> dict[str, Any]:
        return {
            **vars(keras.layers),
            **vars(LIBRARIES[self.library].layers),
            "tf": tf,
            "ops": keras.ops,
            "only": only,
        }

    def make(self) -> keras.layers.Layer:
        return eval(self.made, self.names())  # the table is our own

    def random(self) -> bool:
        """Whether seeds matter: tfdp rejects layers that draw numbers in other ways."""
        return any(layer._seed_generators for layer in self.make()._flatten_layers())


def read_table() -> list[Trial]:
    with TABLE.open() as file:
        return [Trial(**line) for line in csv.DictReader(file)]


def groups_of(table: Sequence[Trial]) -> list[list[Trial]]:
    """Returns lines that can be tried together: of one library, and inputs of the same shapes."""
    groups: list[list[Trial]] = []
    for key, lines in itertools.groupby(sorted(table, key=_kind), _kind):
        together = list(lines)
        size = _TOGETHER if key[-1] in ("safe", "mapped") else 1
        groups += [together[i : i + size] for i in range(0, len(together), size)]
    return groups


def _kind(trial: Trial) -> tuple[str, ...]:
    return trial.library, trial.trained, trial.shapes, trial.verdict


def layers_of(library: str) -> set[str]:
    """Returns the names of a library's public layers.

    Left out are second names of a class, and the converters that models of KerasHub have: they
    prepare data, and most of them differ in a size only.
    """
    found: dict[type, str] = {}
    for name, layer in sorted(vars(LIBRARIES[library].layers).items()):
        is_layer = isinstance(layer, type) and issubclass(layer, keras.layers.Layer)
        converts = name.endswith("Converter") and ".models." in layer.__module__
        if is_layer and not converts and (layer not in found or name == layer.__name__):
            found[layer] = name
    return set(found.values())


class Features(keras.layers.Layer):
    """Calls layers as the table says; returns all numbers that they give, ``[B, N]``."""

    def __init__(self, trials: Sequence[Trial]):
        super().__init__()
        self.tried = [trial.make() for trial in trials]
        self._trials = trials
        self.built = True  # its layers are, when they are first called

    def call(self, inputs):
        inputs = inputs if isinstance(inputs, list | tuple) else [inputs]
        found = []
        for trial, layer in zip(self._trials, self.tried, strict=True):
            own = {"layer": layer, **dict(zip("xyz", inputs, strict=False))}
            found += keras.tree.flatten(eval(trial.called, {**trial.names(), **own}))
        leaves = [tf.convert_to_tensor(leaf) for leaf in found if leaf is not None]
        numbers = [tf.cast(leaf, tf.float32) for leaf in leaves if leaf.dtype != tf.string]
        count = inputs[0].shape[0]
        return tf.concat(
            [tf.reshape(leaf, [count, _size(leaf, count)]) for leaf in numbers], axis=1
        )


class Around(keras.Model):
    """The features, and weights behind them; built without symbols, whose batch has no size."""

    def __init__(self, features: Features, first: Any):
        super().__init__()
        self.features = features
        self.head = keras.layers.Dense(2, use_bias=False)
        self.call(first)
        self.built = True

    def call(self, inputs, training=False):
        return self.head(self.features(inputs))


def only(layer: keras.layers.Layer, branch: str) -> keras.layers.Layer:
    """Returns a RandAugment that always picks one of its layers."""
    layer._AUGMENT_LAYERS = [branch]
    return layer


def verdicts(trials: Sequence[Trial]) -> list[str]:
    """Returns what stands in the table, found by trying; together, which is faster.

    Args:
      trials: Lines with inputs of the same shapes.

    Raises:
      AssertionError: A layer mixes examples, and tfdp trains it so.
    """
    try:
        trained = any(trial.trained != "no" for trial in trials)
        moved = largest_contribution(trials) if trained else 0
        limit = CLIP_NORM * (1 + 1e-4)
        assert moved <= limit, f"one example moves the sum by {moved / CLIP_NORM} C"
        return [_told(mixing(trial), trained) for trial in trials]
    except (UnsupportedLayerError, *_FAILURES) as error:
        if len(trials) > 1:  # which of them is it?
            return [found for trial in trials for found in verdicts([trial])]
        return ["rejected" if isinstance(error, UnsupportedLayerError) else "fails"]


def _told(mixes: bool, trained: bool) -> str:
    if not mixes:
        return "safe"
    return "mapped" if trained else "mixes"


def mixing(trial: Trial) -> bool:
    """Returns whether one example changes another's outputs, or the gradients of its inputs."""
    return any(
        not np.allclose(one, other, rtol=1e-4, atol=1e-4 * max(1, np.abs(one).max(initial=0)))
        for inputs, changed, seed in _tries(trial)
        for one, other in zip(_others(trial, inputs, seed), _others(trial, changed, seed))  # noqa: B905
    )


def largest_contribution(trials: Sequence[Trial]) -> float:
    """Returns by how much the clipped sum moves, at most, when an example is removed."""
    keras.utils.set_random_seed(0)
    tries = max((list(_tries(trial)) for trial in trials), key=len)
    features, first = Features(trials), _alone(tries[0][0])
    model = Around(features, first)
    loss = per_example_loss(keras.losses.MeanSquaredError(reduction=None))
    function = ClippedGradient(model, loss, CLIP_NORM, jit_compile=False)
    weights = [v.value for v in function.forward.trainable]
    state = [v.value for v in function.forward.state]
    moved = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for inputs, _, seed in tries:
            sums = []
            for kept in (0, 1):
                mask = tf.constant(np.arange(EXAMPLES) >= kept)
                y = tf.zeros([EXAMPLES, 2])
                batch = Batch(_alone(inputs), y, None, mask, tf.constant([seed, 1]))
                sums.append(function(weights, state, batch).sums)
            apart = [np.subtract(a, b, dtype="float64") for a, b in zip(*sums, strict=True)]
            moved.append(float(np.sqrt(sum(np.sum(one**2) for one in apart))))
    return max(moved)


def _tries(trial: Trial) -> Iterator[tuple[list[tf.Tensor], list[tf.Tensor], int]]:
    """Yields inputs, the same with another first example, and a seed."""
    for seed in range(SEEDS if trial.library == "keras" and trial.random() else 1):
        ranges = RANGES[:1] if "<" in trial.shapes else RANGES
        for low, high in ranges[-1:] if seed else ranges:
            generator = np.random.default_rng(seed)
            pair = [_drawn(generator, shape, low, high) for shape in trial.shapes.split(" ")]
            changed = [np.concatenate([values[:1], values[2:]]) for values in pair]
            yield [tf.constant(v[1:]) for v in pair], [tf.constant(v) for v in changed], seed


def _drawn(generator: np.random.Generator, shape: str, low: float, high: float) -> np.ndarray:
    shape, _, below = shape.partition("<")
    sizes = [EXAMPLES + 1, *(int(size) for size in shape.split("x") if size)]
    if below:
        return generator.integers(0, int(below), sizes).astype("int32")
    values = generator.uniform(low, high, sizes)
    return (np.floor(values) if high > 2 else values).astype("float32")


def _others(trial: Trial, inputs: list[tf.Tensor], seed: int) -> list[np.ndarray]:
    """Returns outputs and gradients of all examples but the first, of a layer newly made."""
    keras.utils.set_random_seed(seed)
    features = Features([trial])
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = features(_alone(inputs), training=True)
        # A loss for every example, the first too; the factors differ.
        factors = np.random.default_rng(1).normal(size=outputs.shape)
        total = tf.reduce_sum(tf.sin(outputs) * tf.cast(factors, outputs.dtype))
    floating = [leaf for leaf in inputs if leaf.dtype.is_floating]
    gradients = tape.gradient(total, floating, unconnected_gradients="zero")
    return [np.nan_to_num(np.asarray(found)[1:]) for found in (outputs, *gradients)]


def _size(leaf: tf.Tensor, count: int) -> int:
    """Returns how many numbers an example has; -1 if the shape does not tell."""
    first, *rest = leaf.shape
    if None in rest:
        return -1
    return math.prod(rest) * (first or count) // count


def _alone(inputs: list[tf.Tensor]) -> Any:
    return inputs[0] if len(inputs) == 1 else inputs
