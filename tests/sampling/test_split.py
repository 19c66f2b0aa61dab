"""Batches split into microbatches of a fixed shape."""

import numpy as np
import pytest

from tfdp.sampling import PoissonSampler, split_into_microbatches


@pytest.mark.parametrize(
    ("count", "multiple_of", "microbatches"),
    [(300, 1, 5), (0, 1, 1), (64, 1, 1), (65, 1, 2), (0, 4, 4), (300, 4, 8)],
)
def test_every_example_is_in_exactly_one_microbatch(count, multiple_of, microbatches):
    """E2: 300 examples in microbatches of 64 are 5; none is dropped, an empty batch is padding."""
    batch = np.arange(count) + 7
    padded, mask = split_into_microbatches(batch, 64, multiple_of)
    assert padded.shape == mask.shape == (microbatches, 64)
    np.testing.assert_array_equal(padded[mask], batch)
    assert not padded[~mask].any()


def test_empty_poisson_batches_can_be_split():
    """E9: the batches of E1 in microbatches of at most 8."""
    sampler = PoissonSampler(100, 0.03, seed=1)
    for step in range(200):
        batch = sampler.indices(step)
        microbatches, mask = split_into_microbatches(batch, 8)
        assert len(microbatches) >= 1
        assert mask.sum() == len(batch)
