"""Batches split into microbatches of a fixed shape."""

import numpy as np
import pytest

from tfdp.sampling import PoissonSampler, split_into_chunks


@pytest.mark.parametrize(
    ("count", "multiple_of", "chunks"),
    [(300, 1, 5), (0, 1, 1), (64, 1, 1), (65, 1, 2), (0, 4, 4), (300, 4, 8)],
)
def test_e2_every_record_is_in_exactly_one_chunk(count, multiple_of, chunks):
    """E2: 300 records in microbatches of 64 are 5; none is dropped, an empty batch is padding."""
    batch = np.arange(count) + 7
    padded, mask = split_into_chunks(batch, 64, multiple_of)
    assert padded.shape == mask.shape == (chunks, 64)
    np.testing.assert_array_equal(padded[mask], batch)
    assert not padded[~mask].any()


def test_e9_empty_poisson_batches_can_be_split():
    """E9: the batches of E1 in microbatches of at most 8."""
    sampler = PoissonSampler(100, 0.03, seed=1)
    for update in range(200):
        batch = sampler.indices(update)
        chunks, mask = split_into_chunks(batch, 8)
        assert len(chunks) >= 1
        assert mask.sum() == len(batch)
