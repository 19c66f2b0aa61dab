"""Privacy loss distributions, by dp-accounting."""

from __future__ import annotations

import functools
import math

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from tfdp.privacy.accounting.rdp import quick
from tfdp.privacy.accounting.releases import CannotAnswerError, Mechanism, Releases

#: Grid of privacy losses for ordinary settings.
INTERVAL = 1e-4
#: A loss range of fewer grid points than this gets a finer grid, down to `_FINEST`: on a coarse
#: grid the (safe) rounding up would show.
_FEWEST_POINTS = 1000
_FINEST = 1e-5
#: Longest grids, for one release and for all of them composed. Beyond them the grid is coarsened:
#: every result stays an upper bound, and so wide a distribution does not notice. Keeps time
#: under a second and memory small.
_MOST_POINTS = 40_000
_COMPOSED_POINTS_PER_POINT = 32
_MOST_IN_ONE_ROUND = 2**19
#: Rounding of the Fourier transforms, in units of probability, per composed release.
_ROUNDING = 1e-15


def _largest_loss(mechanism: Mechanism) -> float:
    """Returns about the width of the loss distribution of one release: ten deviations each way."""
    loss = 10 / mechanism.multiplier + 0.5 / mechanism.multiplier**2
    if mechanism.kind == "gaussian":
        return 2 * loss
    q = mechanism.probability
    return float(np.logaddexp(0.0, math.log(q) - math.log1p(-q) + loss))


def _composed_width(counts: Releases) -> float:
    """Returns about the width of the composed loss distribution, from a handful of Renyi orders."""
    orders = [1.1, 1.3, 2, 3, 5, 9, 17, 33, 65]
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    for mechanism, count in counts.items():
        accountant.compose(quick(mechanism).event(count))
    divergence = np.maximum(accountant.rdp, 0)
    tail, _ = dp_accounting.rdp.compute_epsilon(orders, divergence, 1e-15)
    return 2 * tail


def _interval(counts: Releases, most_points: int) -> float:
    """Returns the grid for these releases: `INTERVAL`, unless they are very narrow or very wide."""
    widest = max(_largest_loss(mechanism) for mechanism in counts)
    interval = min(INTERVAL, max(_FINEST, widest / _FEWEST_POINTS))
    interval = max(interval, widest / most_points)
    longest = interval * _COMPOSED_POINTS_PER_POINT * most_points
    excess = max(1.0, _composed_width(counts) / longest)
    # In powers of two, so that other numbers of the same releases find theirs in the cache.
    return interval * 2.0 ** math.ceil(math.log2(excess))


@functools.lru_cache(maxsize=8)
def _one_release(
    mechanism: Mechanism, interval: float, neighbor: AdjacencyType
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns the loss distribution of one release, rounded up ("connect the dots").

    As `privacy_loss_distribution.from_gaussian_mechanism` has it, for an example removed or added.
    """
    loss = GaussianPrivacyLoss(
        mechanism.multiplier, sampling_prob=mechanism.probability, adjacency_type=neighbor
    )
    ends = loss.connect_dots_bounds()
    lowest = math.floor(ends.epsilon_lower / interval)
    highest = math.ceil(ends.epsilon_upper / interval)
    deltas = loss.get_delta_for_epsilon(np.arange(lowest, highest + 1) * interval)
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, lowest, highest, deltas)
    )


def _repeat(
    release: privacy_loss_distribution.PrivacyLossDistribution, count: int
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns the release `count` times over, in two rounds if that is very often.

    For short grids dp-accounting first works out (grid points) ** count, as an exact integer;
    with millions of releases that alone takes minutes.
    """
    if count <= _MOST_IN_ONE_ROUND:
        return release.self_compose(count)
    rounds, rest = divmod(count, _MOST_IN_ONE_ROUND)
    repeated = _full_round(release).self_compose(rounds)
    return repeated.compose(release.self_compose(rest)) if rest else repeated


@functools.lru_cache(maxsize=2)
def _full_round(
    release: privacy_loss_distribution.PrivacyLossDistribution,
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Is kept for another number of the same release, as calibration asks for."""
    return release.self_compose(_MOST_IN_ONE_ROUND)


def _compose(
    counts: Releases, interval: float, neighbor: AdjacencyType
) -> privacy_loss_distribution.PrivacyLossDistribution:
    total = privacy_loss_distribution.identity(value_discretization_interval=interval)
    for mechanism, count in counts.items():
        if mechanism.kind == "gaussian":
            # Plain Gaussian releases compose in closed form before they meet the grid.
            mechanism, count = Mechanism("gaussian", mechanism.multiplier / math.sqrt(count)), 1
        total = total.compose(_repeat(_one_release(mechanism, interval, neighbor), count))
    return total


@functools.lru_cache(maxsize=128)
def _epsilon(
    counts: tuple[tuple[Mechanism, int], ...],
    delta: float,
    most_points: int,
    neighbor: AdjacencyType,
) -> float:
    """Is kept for a while: calibrations, reports and budgets all ask about the same releases."""
    with np.errstate(all="ignore"):
        interval = _interval(dict(counts), most_points)
        total = _compose(dict(counts), interval, neighbor)
        return total.get_epsilon_for_delta(delta)


class PldAccountant:
    """Epsilon through the privacy loss distribution, rounded up on a grid.

    Connect-the-dots discretization (Doroshenko et al. 2022) and composition by Fourier
    transform (Koskela, Jalkoe and Honkela 2020). The tightest answer for Poisson sampling.
    """

    name = "pld"
    title = "PLD (dp-accounting)"

    def __init__(self, most_points: int = _MOST_POINTS) -> None:
        """Makes an accountant.

        Args:
            most_points: Longest grid for one release; fewer points are faster, and looser.
        """
        self._most_points = most_points

    def epsilon(self, counts: Releases, delta: float) -> float:
        """See `Accountant.epsilon`. Costs up to a second, 0.1 s for another count of the same."""
        if any(mechanism.kind == "fixed_size" for mechanism in counts):
            raise CannotAnswerError("sampling without replacement has no PLD analysis")
        slack = _ROUNDING * sum(counts.values())
        if slack >= delta / 2:
            raise CannotAnswerError(f"delta {delta:g} is within the rounding of the transforms")
        try:
            epsilon = max(
                _epsilon(tuple(counts.items()), delta - slack, self._most_points, neighbor)
                for neighbor in (AdjacencyType.REMOVE, AdjacencyType.ADD)
            )
        except (ArithmeticError, ValueError, MemoryError) as error:
            raise CannotAnswerError(f"the loss distribution fails here ({error})") from error
        if not math.isfinite(epsilon):
            raise CannotAnswerError(f"delta {delta:g} is below the truncated tail mass")
        return float(epsilon)
