"""Features of a whole source, in order."""

import numpy as np

from tfdp.data import ArraySource
from tfdp.evaluation import extract_features


def test_every_record_is_seen_once_in_order_whatever_the_batch():
    pictures = np.arange(7 * 2 * 2 * 3, dtype=np.float32).reshape(7, 2, 2, 3)
    source = ArraySource({"image": pictures})
    for batch_size in (1, 3, 7, 16):
        rows, kept = extract_features(
            lambda x: 2 * x["image"], source, batch_size=batch_size, limit=None
        )
        np.testing.assert_array_equal(rows, 2 * pictures.reshape(7, -1))
        np.testing.assert_array_equal(kept, np.arange(7))
    rows, kept = extract_features(lambda x: x["image"], source, batch_size=3, limit=4)
    np.testing.assert_array_equal(rows, pictures[:4].reshape(4, -1))
    np.testing.assert_array_equal(kept, np.arange(4))
