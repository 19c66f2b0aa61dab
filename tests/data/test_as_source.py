"""What may be passed to `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import ArraySource, IndexableSource, as_source


class _Records:
    element_spec = (tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.int64))

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full(2, index, np.float32), index


class _Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.zeros((4, 2)), np.zeros(4)


class _WeightedLoader:
    """As torch gives one: its rate is that of a sampler that nobody accounts for."""

    sampler = "WeightedRandomSampler(num_samples=128)"

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.zeros((16, 2)), np.zeros(16)


_WeightedLoader.__name__ = "DataLoader"
_WeightedLoader.__module__ = "torch.utils.data.dataloader"


def test_e6_arrays_dicts_indexables_and_sources_are_accepted():
    assert isinstance(as_source(np.zeros((4, 2)), np.zeros(4)), ArraySource)
    assert isinstance(as_source({"a": np.zeros(4)}, [0, 1, 0, 1]), ArraySource)
    assert isinstance(as_source(tf.zeros((4, 2))), ArraySource)
    assert isinstance(as_source(_Records()), IndexableSource)
    source = ArraySource(np.zeros(3))
    assert as_source(source) is source


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (tf.data.Dataset.from_generator(lambda: iter([1]), tf.int64), "which streams in an order"),
        (tf.data.Dataset.range(5), "streams its 5 elements"),
        ((i for i in range(3)), "generator or iterator of unknown size"),
        (_Batches(), "whose items are batches"),
        (_WeightedLoader(), "x is a DataLoader, whose items are batches"),
    ],
)
def test_what_has_no_random_access_is_rejected(x, message):
    with pytest.raises(TypeError, match=message) as error:
        as_source(x)
    assert "random access" in str(error.value) and "tfds.data_source" in str(error.value)


def test_targets_beside_examples_are_rejected():
    with pytest.raises(ValueError, match="y must be None"):
        as_source(_Records(), y=np.zeros(3))
    with pytest.raises(ValueError, match="sample_weight must be None"):
        as_source(ArraySource(np.zeros(3)), sample_weight=np.ones(3))
