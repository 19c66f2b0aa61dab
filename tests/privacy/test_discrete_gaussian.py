"""The discrete Gaussian: its distribution, exactness of close calls, and its key.

Statistical tests have fixed seeds, and a false-alarm rate below 1e-6 for seeds that are not.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import tfdp.privacy.discrete_gaussian as module
from tfdp.privacy.discrete_gaussian import discrete_gaussian

SEED = bytes(range(32))


def expected(values, deviation):
    """Probabilities of integers, from their definition."""
    far = np.arange(-60 * deviation, 60 * deviation + 1)
    weights = np.exp(-((np.asarray(values) / deviation) ** 2) / 2)
    return weights / np.exp(-((far / deviation) ** 2) / 2).sum()


@pytest.mark.parametrize("deviation", [1, 3, 8])
def test_small_deviations_have_the_probabilities_of_the_definition(deviation):
    drawn = discrete_gaussian(300_000, deviation, SEED)
    inside = np.arange(-3 * deviation, 3 * deviation + 1)
    seen = np.array([np.sum(drawn == value) for value in inside])
    share = expected(inside, deviation)
    seen, share = np.append(seen, len(drawn) - seen.sum()), np.append(share, 1 - share.sum())
    assert stats.chisquare(seen, share * len(drawn)).pvalue > 1e-6


@pytest.mark.parametrize("deviation", [2**20 + 7, 2**24, 2**40 - 3, 2**52])
def test_large_deviations_fill_equal_shares_of_the_normal_distribution(deviation):
    drawn = discrete_gaussian(200_000, deviation, SEED)
    assert drawn.dtype == np.int64
    bins = np.searchsorted(stats.norm.ppf(np.linspace(0, 1, 65)[1:-1]), drawn / deviation)
    assert stats.chisquare(np.bincount(bins, minlength=64)).pvalue > 1e-6
    low = np.bincount(drawn & 63, minlength=64)  # the last bits are uniform
    assert stats.chisquare(low).pvalue > 1e-6


def test_the_tail_is_there():
    """Of a million draws 63.3 lie beyond 4 deviations and 0.57 beyond 5; Poisson limits 1e-7."""
    sizes = np.abs(discrete_gaussian(1_000_000, 1000, SEED)) / 1000
    assert 28 < np.sum(sizes > 4) < 112
    assert np.sum(sizes > 5) < 9


def test_settling_every_proposal_exactly_changes_nothing(monkeypatch):
    """Floating point only decides what is far from close: the answers are the exact ones."""
    drawn = discrete_gaussian(500, 2**21 - 5, SEED)
    monkeypatch.setattr(module, "_PROPOSALS", 2**11)
    short = discrete_gaussian(500, 2**21 - 5, SEED)
    monkeypatch.setattr(module, "_MARGIN", 2.0**40)
    monkeypatch.setattr(module, "_LOG_MARGIN", 10.0)
    settled = []
    exactly = module._exactly
    monkeypatch.setattr(module, "_exactly", lambda *a: settled.append(a) or exactly(*a))
    np.testing.assert_array_equal(discrete_gaussian(500, 2**21 - 5, SEED), short)
    assert len(settled) >= 2**11
    assert not np.array_equal(short, drawn)  # blocks are part of the stream


def test_close_calls_take_more_bits_until_they_are_settled():
    """U between the 31 first bits of exp(-1/2) and the next number: only further bits tell."""
    threshold = Fraction(np.exp(-0.5))
    first = int(threshold * 2**31)
    rest = int(threshold * 2**95) % 2**64
    assert module._Uniform(first, 31, lambda n: 0).below_exp(Fraction(1, 2))
    assert not module._Uniform(first, 31, lambda n: 2**64 - 1).below_exp(Fraction(1, 2))
    near = module._Uniform(first, 31, lambda n: rest + 2**30)  # beyond the rounding of np.exp
    assert not near.below_exp(Fraction(1, 2))
    assert module._Uniform(2**31 - 1, 31, lambda n: 0).below_exp(Fraction(0))


def test_draws_are_a_function_of_the_seed_alone():
    one = discrete_gaussian(1000, 50, SEED)
    np.testing.assert_array_equal(one, discrete_gaussian(1000, 50, SEED))
    np.testing.assert_array_equal(one[:100], discrete_gaussian(100, 50, SEED))
    other = discrete_gaussian(1000, 50, SEED[::-1])
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.16  # five standard errors
    assert discrete_gaussian(0, 50, SEED).shape == (0,)


@pytest.mark.parametrize("deviation", [0, -1, 2**52 + 1])
def test_deviations_out_of_range_are_rejected(deviation):
    with pytest.raises(ValueError, match="deviation="):
        discrete_gaussian(1, deviation, SEED)
