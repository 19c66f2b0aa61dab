"""Poisson sampling: the distribution that the accounting assumes is the one that is drawn."""

import numpy as np
import pytest
from scipy import stats

from tfdp.sampling import PoissonSampler

# Every statistical test here uses a fixed seed and a threshold with a false-alarm rate < 1e-6.
_FALSE_ALARM = 1e-6


def test_rate_of_empty_batches():
    """E1: N = 100, q = 0.03: 0.97^100 of the steps are empty, 47.6 in 1,000."""
    sampler = PoissonSampler(100, 0.03, seed=1)
    empty = sum(sampler.count(step) == 0 for step in range(1000))
    assert abs(empty - 1000 * 0.97**100) < 20


def test_size_and_coverage_of_an_epoch():
    """E5: N = 59,904, q = 128 / N, 468 steps: mean 128, SD 11.30, coverage 63.25 %."""
    sampler = PoissonSampler(59_904, 128 / 59_904, seed=5)
    batches = [sampler.indices(step) for step in range(468)]
    sizes = np.array([len(batch) for batch in batches])
    # The mean of 468 draws has SD 0.52, their SD has SD 0.37.
    assert abs(sizes.mean() - 128) < 2.6
    assert abs(sizes.std() - 11.30) < 1.85
    coverage = len(np.unique(np.concatenate(batches))) / 59_904
    assert abs(coverage - 0.6325) < 0.005
    assert sampler.expected_coverage(468) == pytest.approx(0.6325, abs=5e-5)
    assert sampler.expected_batch_size == pytest.approx(128)


def test_every_example_is_equally_likely():
    sampler = PoissonSampler(50, 0.3, seed=2)
    steps = 4000
    times = np.zeros(50)
    for step in range(steps):
        times[sampler.indices(step)] += 1
    variance = steps * 0.3 * 0.7
    chi_square = np.sum((times - steps * 0.3) ** 2) / variance
    assert _FALSE_ALARM < stats.chi2.cdf(chi_square, 50) < 1 - _FALSE_ALARM


def test_sizes_follow_the_binomial():
    sampler = PoissonSampler(40, 0.2, seed=3)
    sizes = [sampler.count(step) for step in range(5000)]
    cells = np.arange(3, 14)
    observed = np.bincount(np.clip(sizes, 3, 13), minlength=14)[3:]
    expected = stats.binom.pmf(cells, 40, 0.2)
    expected[0] = stats.binom.cdf(3, 40, 0.2)
    expected[-1] = stats.binom.sf(12, 40, 0.2)
    assert stats.chisquare(observed, expected * 5000).pvalue > _FALSE_ALARM


def test_pairs_of_examples_are_independent():
    sampler = PoissonSampler(2, 0.5, seed=4)
    cells = np.zeros((2, 2))
    for step in range(4000):
        drawn = sampler.indices(step)
        cells[int(0 in drawn), int(1 in drawn)] += 1
    assert stats.chisquare(cells.ravel()).pvalue > _FALSE_ALARM


def test_steps_are_independent():
    """An example drawn in one step is neither more nor less likely to be drawn in the next."""
    sampler = PoissonSampler(200, 0.5, seed=6)
    drawn = np.zeros((400, 200), bool)
    for step in range(400):
        drawn[step, sampler.indices(step)] = True
    stays = np.sum(drawn[1:] == drawn[:-1])
    assert stats.binomtest(int(stays), 399 * 200, 0.5).pvalue > _FALSE_ALARM


def test_a_draw_is_a_pure_function_of_seed_and_step():
    sampler = PoissonSampler(1000, 0.1, seed=2**127 + 3)
    forwards = [sampler.indices(step) for step in range(5)]
    backwards = [
        PoissonSampler(1000, 0.1, seed=2**127 + 3).indices(step) for step in reversed(range(5))
    ]
    for one, other in zip(forwards, reversed(backwards), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [sampler.count(step) for step in range(5)] == [len(batch) for batch in forwards]
    assert len({tuple(batch) for batch in forwards}) == 5


def test_indices_are_sorted_distinct_and_in_range():
    batch = PoissonSampler(300, 0.4, seed=7).indices(11)
    assert batch.dtype == np.int64
    assert np.all(np.diff(batch) > 0)
    assert batch[0] >= 0 and batch[-1] < 300


def test_other_seeds_give_other_draws_and_no_seed_gives_entropy():
    one, other = PoissonSampler(1000, 0.5), PoissonSampler(1000, 0.5)
    assert one.seed != other.seed
    assert not np.array_equal(one.indices(0), other.indices(0))
    assert max(one.seed, other.seed).bit_length() > 64


def test_probability_one_draws_everything():
    sampler = PoissonSampler(17, 1.0, seed=0)
    np.testing.assert_array_equal(sampler.indices(3), np.arange(17))
    assert sampler.expected_coverage(1) == 1.0


def test_hundreds_of_millions_of_examples():
    """The reference run: 233,804,767 pairs, 1,310,720 expected in a step."""
    sampler = PoissonSampler(233_804_767, 1_310_720 / 233_804_767, seed=8)
    batch = sampler.indices(5707)
    assert abs(len(batch) - 1_310_720) < 5 * np.sqrt(1_310_720)
    assert np.all(np.diff(batch) > 0)
    # A uniform subset is as likely in any tenth of the data as in any other.
    tenths = np.histogram(batch, bins=10, range=(0, 233_804_767))[0]
    assert stats.chisquare(tenths).pvalue > _FALSE_ALARM


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0001, float("nan")])
def test_impossible_probabilities_are_rejected(probability):
    with pytest.raises(ValueError, match=r"probability must be in \(0, 1\]"):
        PoissonSampler(10, probability)


def test_other_impossible_arguments_are_rejected():
    with pytest.raises(ValueError, match="num_examples must be a whole number .*, got 0"):
        PoissonSampler(0, 0.5)
    with pytest.raises(TypeError, match="num_examples must be a whole number .*, got 10.5"):
        PoissonSampler(10.5, 0.5)
    with pytest.raises(ValueError, match="seed must be in"):
        PoissonSampler(10, 0.5, seed=2**128)
    with pytest.raises(ValueError, match="step must be a whole number of at least 0, got -1"):
        PoissonSampler(10, 0.5).indices(-1)
