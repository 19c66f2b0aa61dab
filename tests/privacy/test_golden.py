"""Epsilon of settings whose answer is known: the table of reference numbers, N1 to N22."""

import math

import numpy as np
import pytest
from scipy import integrate

from tfdp.privacy import Segment, StepSettings, epsilon
from tfdp.privacy.accounting import Guarantee, epsilon_by_accountant, epsilon_without_amplification
from tfdp.privacy.accounting.rdp import divergences
from tfdp.privacy.accounting.releases import Mechanism

LAION = 233_804_767


def segment(noise, batch, examples, steps, **more):
    return Segment(StepSettings(examples, batch, noise, 1.0, **more), steps)


def by(accountant, *segments, delta=1e-5) -> Guarantee:
    return epsilon(segments, delta, accountant)


# id, noise, B, N, T, delta, RDP, PLD. The RDP figures of N9, N10, N16 and N21 are what
# tensorflow-privacy gives at its own orders; a table made with coarser orders prints 6.3452,
# 5.7561, 5.1045 and 79.40.
POISSON = [
    ("N1", 1.3, 250, 15_000, 900, 1e-5, 2.0847, 1.8915),
    ("N2", 1.3, 250, 60_000, 3600, 1e-5, 0.9422, 0.8530),
    ("N3", 1.1, 250, 60_000, 14_400, 1e-5, 2.5617, 2.3496),
    ("N4", 4, 1, 100, 10_000, 1e-5, 1.0355, 0.9470),
    ("N5", 4, 1, 100, 40_000, 1e-5, 2.2097, 2.0334),
    ("N6", 1.54, 1024, 50_000, 1464, 1e-5, 2.6083, 2.3863),
    ("N7", 3, 1, 5, 50, 1 / 48_000, 2.1690, 1.9608),
    ("N8", 1, 1, 100, 100, 1e-5, 1.2141, 0.7180),
    ("N9", 1, 8, 100, 100, 1e-5, 6.3396, 5.6134),
    ("N10", 1, 1, 5, 10, 1e-5, 5.7537, 4.9842),
    ("N12", 1, 105, 100_000, 1, 1e-3, 0.2548, 0.0),
    ("N13, T=400", 1, 256, 60_000, 400, 1e-5, 0.9683, 0.4857),
    ("N13, T=600", 1, 256, 60_000, 600, 1e-5, 1.0142, 0.5773),
    ("N13, T=1000", 1, 256, 60_000, 1000, 1e-5, 1.0979, 0.7276),
    ("N13, T=1170", 1, 256, 60_000, 1170, 1e-5, 1.1322, 0.7834),
    ("N13, T=2000", 1, 256, 60_000, 2000, 1e-5, 1.2895, 1.0162),
    ("N13, T=2340", 1, 256, 60_000, 2340, 1e-5, 1.3516, 1.0990),
    ("N14", 1, 64, 60_000, 1000, 1e-5, 0.6803, 0.1599),
    ("N16", 0.65, 250, 60_000, 3600, 1e-5, 5.1033, 4.3020),
    ("N21", 0.3, 1, 100, 1000, 1e-5, 79.0546, 69.8157),
]


@pytest.mark.parametrize(
    ("noise", "batch", "examples", "steps", "delta", "rdp", "pld"),
    [row[1:] for row in POISSON],
    ids=[row[0] for row in POISSON],
)
def test_poisson_rows(noise, batch, examples, steps, delta, rdp, pld):
    answers = epsilon_by_accountant([segment(noise, batch, examples, steps)], delta)
    assert answers["rdp"] == pytest.approx(rdp, abs=1e-4)
    assert answers["pld"] == pytest.approx(pld, abs=1.5e-4)
    assert answers["gaussian"] is None
    chosen = epsilon([segment(noise, batch, examples, steps)], delta)
    assert (chosen.epsilon, chosen.accountant) == (answers["pld"], "pld")


@pytest.mark.parametrize(
    ("batch", "noise", "steps", "rdp", "pld"),
    [
        (1_310_720, 0.728, 5708, 8.05, 7.34),
        (1_310_720, 1.18, 2854, 1.99, 1.78),
        (200_000, 0.513, 5700, 7.98, 6.85),
        (1_310_720, 1.5, 1427, 1.02, 0.88),
    ],
)
def test_published_captioner_runs(batch, noise, steps, rdp, pld):
    answers = epsilon_by_accountant([segment(noise, batch, LAION, steps)], 1 / LAION)
    assert answers["rdp"] == pytest.approx(rdp, abs=0.005)
    assert answers["pld"] == pytest.approx(pld, abs=0.005)


def test_nothing_reports_less_than_the_tight_value():
    """A central-limit figure would be 1.838; the tight value is 1.9608."""
    answers = epsilon_by_accountant([segment(3, 1, 5, 50)], 1 / 48_000)
    assert min(value for value in answers.values() if value is not None) >= 1.9608


def test_a_tiny_delta_is_answered_by_the_next_safe_accountant():
    answer = by("auto", segment(4, 33, 100_000, 10_000), delta=1.13e-18)
    assert answer.accountant == "rdp"
    assert answer.epsilon == pytest.approx(0.1457, abs=1e-4)
    assert answer.epsilon <= 0.1457
    assert "PLD" in answer.note and "cannot answer" in answer.note
    beside = by("auto", segment(4, 33, 100_000, 10_000), delta=1.10e-18)
    assert beside.epsilon == pytest.approx(answer.epsilon, rel=1e-3), "no jump between deltas"


def test_without_amplification_each_pass_is_one_exposure():
    passes = segment(1, 256, 60_000, 1170, sampling="none")
    assert by("rdp", passes).epsilon == pytest.approx(12.30, abs=0.005)
    assert by("pld", passes).epsilon == pytest.approx(11.48, abs=0.005)
    assert by("auto", passes).epsilon == pytest.approx(11.4800, abs=1e-4)
    poisson = segment(1, 256, 60_000, 1170)
    assert epsilon_without_amplification([poisson], 1e-5) == pytest.approx(11.4800, abs=1e-4)
    assert by("auto", poisson).epsilon == pytest.approx(0.7834, abs=1e-4)


@pytest.mark.parametrize(("noise", "steps"), [(10, 100), (1, 1)])
def test_the_full_batch_has_an_exact_answer(noise, steps):
    full = segment(noise, 100, 100, steps)
    assert full.settings.sampling == "full_batch"
    answer = by("auto", full)
    assert (answer.accountant, answer.note) == ("gaussian", "")
    assert answer.epsilon == pytest.approx(4.377178, abs=1e-6)
    assert by("rdp", full).epsilon == pytest.approx(4.7285, abs=1e-4)
    assert by("pld", full).epsilon == pytest.approx(4.3772, abs=1e-4)


def test_segments_with_different_settings_compose():
    parts = [segment(1, 1, 100, 500), segment(2, 2, 100, 500)]
    assert by("pld", *parts).epsilon == pytest.approx(1.6151, abs=1e-4)
    assert by("rdp", *parts).epsilon == pytest.approx(1.8946, abs=1e-4)
    assert by("auto", *reversed(parts)).epsilon == pytest.approx(1.6151, abs=1e-4)
    naive = sum(by("pld", part).epsilon for part in parts)
    assert naive == pytest.approx(2.2470, abs=1e-3)


def test_fixed_size_without_replacement_counts_a_replaced_example_twice():
    """The reference is for noise over sensitivity 1; replacing moves the sum by 2 clip norms."""
    fixed = segment(2.0, 256, 60_000, 1000, sampling="fixed_size")
    answer = by("auto", fixed)
    assert fixed.settings.adjacency == "replace_one"
    assert answer.epsilon == pytest.approx(1.4844, abs=1e-4)
    assert answer.accountant == "rdp"
    assert by("rdp", segment(1.0, 256, 60_000, 1000, sampling="fixed_size")).epsilon > 3


def test_steps_before_and_after_a_restart_are_one_run():
    halves = [segment(1, 256, 60_000, 600), segment(1, 256, 60_000, 400)]
    assert by("pld", *halves).epsilon == pytest.approx(0.7276, abs=1e-4)


@pytest.mark.parametrize(
    ("steps", "new", "old"), [(10_000, 1.0355, 1.2586), (40_000, 2.2097, 2.5737)]
)
def test_papers_used_another_conversion(steps, new, old):
    """N4 and N5: old is Mironov 2017, Proposition 3; new is Canonne et al. 2020, Proposition 12."""
    orders, divergence = divergences(Mechanism("poisson", 4.0, 1, 100))
    conversion = divergence * steps + math.log(1e5) / (orders - 1)
    assert conversion.min() == pytest.approx(old, abs=1e-4)
    assert by("rdp", segment(4, 1, 100, steps)).epsilon == pytest.approx(new, abs=1e-4)


def test_fine_orders_matter():
    """N6: whole orders from 11 to 63 alone give 2.8223."""
    orders, divergence = divergences(Mechanism("poisson", 1.54, 1024, 50_000))
    a, total = orders, divergence * 1464
    figures = total + np.log1p(-1 / a) - np.log(1e-5 * a) / (a - 1)
    coarse = figures[(a >= 11) & (a <= 63)].min()
    assert coarse == pytest.approx(2.8223, abs=1e-4)
    assert figures.min() == pytest.approx(2.6083, abs=1e-4)


@pytest.mark.parametrize(("order", "noise", "rate"), [(1.3, 0.3, 0.01), (3.6, 1.0, 0.08)])
def test_divergences_agree_with_quadrature(order, noise, rate):
    def density(x):
        log_ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))
        return math.exp(order * log_ratio - x * x / (2 * noise**2)) / noise / math.sqrt(2 * math.pi)

    integral, _ = integrate.quad(density, -9 * noise, order + 9 * noise, points=[0, 1], limit=500)
    expected = math.log(integral) / (order - 1)
    orders, divergence = divergences(Mechanism("poisson", noise, round(rate * 100), 100))
    assert divergence[np.argmin(abs(orders - order))] == pytest.approx(expected, rel=1e-7)
