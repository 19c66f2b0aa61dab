"""Full batches and batches of a fixed size."""

import numpy as np
import pytest
from scipy import stats

from tfdp.sampling import FixedSizeSampler, FullBatchSampler


def test_full_batch_is_every_example_every_time():
    sampler = FullBatchSampler(9)
    np.testing.assert_array_equal(sampler.indices(4), np.arange(9))
    assert (sampler.count(0), sampler.expected_batch_size, sampler.name) == (9, 9.0, "full_batch")


def test_fixed_size_is_always_that_size_and_pure():
    sampler = FixedSizeSampler(100, 12, seed=1)
    batches = [sampler.indices(step) for step in range(20)]
    assert {len(np.unique(batch)) for batch in batches} == {12}
    np.testing.assert_array_equal(FixedSizeSampler(100, 12, seed=1).indices(19), batches[19])
    assert sampler.expected_batch_size == 12.0


def test_fixed_size_is_uniform():
    """Chi-square over examples, false-alarm rate 1e-6."""
    sampler = FixedSizeSampler(30, 6, seed=2)
    times = np.zeros(30)
    for step in range(3000):
        times[sampler.indices(step)] += 1
    # Counts of a fixed-size sample are negatively correlated: 29 degrees of freedom.
    chi_square = np.sum((times - 600) ** 2) / (3000 * 0.2 * 0.8) * 29 / 30
    assert 1e-6 < stats.chi2.cdf(chi_square, 29) < 1 - 1e-6


def test_coverage_of_a_fixed_size():
    assert FixedSizeSampler(10, 10, seed=0).expected_coverage(1) == 1.0
    assert FixedSizeSampler(100, 10, seed=0).expected_coverage(10) == pytest.approx(1 - 0.9**10)


def test_a_batch_larger_than_the_data_is_rejected():
    with pytest.raises(ValueError, match="batch_size must be at most num_examples = 5, got 6"):
        FixedSizeSampler(5, 6)
