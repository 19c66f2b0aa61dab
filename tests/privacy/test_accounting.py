"""Accounting at its edges: it always answers, never too low, and refuses what has no analysis."""

import ast
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import tfdp.privacy as privacy
from tfdp.privacy import Segment, StepSettings, epsilon
from tfdp.privacy.accounting import choose, epsilon_by_accountant
from tfdp.privacy.accounting.gaussian import GaussianAccountant, epsilon_of_mu, log_delta
from tfdp.privacy.accounting.rdp import divergences
from tfdp.privacy.accounting.releases import CannotAnswerError, Mechanism
from tfdp.privacy.settings import common_adjacency


def segment(noise, batch, examples, steps, **more):
    return Segment(StepSettings(examples, batch, noise, 1.0, **more), steps)


def auto(*segments, delta=1e-5):
    return epsilon(segments, delta).epsilon


@pytest.mark.parametrize("noise", [0.3, 0.5, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("rate", [1e-5, 1e-3, 0.05, 0.2, 1.0])
def test_every_ordinary_setting_has_a_finite_answer(noise, rate):
    answers = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (1, 10, 1000, 100_000):
            run = segment(noise, round(rate * 100_000), 100_000, steps)
            answer = epsilon([run], 1e-5)
            assert math.isfinite(answer.epsilon) and answer.epsilon >= 0, answer
            assert answer.note == "", answer
            answers.append(answer.epsilon)
    assert answers == sorted(answers)


def test_ten_million_steps_have_an_answer():
    """On short grids dp-accounting would first raise the grid's size to that power."""
    answers = epsilon_by_accountant([segment(1.962, 558, 10**8, 9_437_025)], 1.6e-6)
    assert 0.03 < answers["pld"] < 0.06
    whole = epsilon([segment(4.0, 10, 1000, 2**16)], 1e-5).epsilon
    assert whole < epsilon([segment(4.0, 10, 1000, 2**16 + 1)], 1e-5).epsilon < whole * 1.001


def test_rounding_does_not_make_renyi_claim_perfect_privacy():
    """At s=50, q=1e-5, T=1e5 the series' rounding alone would give epsilon 0; truth is above."""
    run = segment(50.0, 1, 100_000, 100_000)
    assert epsilon([run], 1e-5, "rdp").epsilon > 1e-3
    assert auto(run) > 1e-4


def test_no_steps_cost_nothing_and_no_noise_costs_everything():
    assert auto() == 0.0
    assert auto(segment(1.0, 1, 100, 0)) == 0.0
    answer = epsilon([segment(0.0, 1, 100, 1)], 1e-5)
    assert answer.epsilon == math.inf
    assert "no guarantee" in answer.note
    assert auto(segment(0.0, 1, 100, 1), segment(1.0, 1, 100, 5)) == math.inf
    assert set(epsilon_by_accountant([segment(0.0, 1, 100, 1)], 1e-5).values()) == {math.inf}


def test_epsilon_grows_with_steps_and_probability_and_falls_with_noise():
    rng = np.random.default_rng(7)
    for _ in range(3):
        noise = float(rng.uniform(1, 5))
        batch, steps = int(rng.integers(1, 300)), int(rng.integers(1, 500))
        here = auto(segment(noise, batch, 1000, steps))
        assert auto(segment(noise, batch, 1000, steps * 2)) >= here
        assert auto(segment(noise, batch * 2, 1000, steps)) >= here
        assert auto(segment(noise * 1.1, batch, 1000, steps)) <= here


def test_tightest_valid_answer_wins():
    """With much noise the loss distribution's grid is the coarser of the two bounds."""
    run = [segment(71_000.0, 80, 100, 100_000)]
    answers = epsilon_by_accountant(run, 1e-5)
    assert answers["rdp"] < answers["pld"]
    assert epsilon(run, 1e-5).accountant == "rdp"


def test_an_accountant_that_cannot_answer_hands_over_and_says_so():
    answer = epsilon([segment(1.0, 1, 100, 10)], 1e-5, "gaussian")
    assert answer.accountant == "pld"
    assert "closed form" in answer.note
    fixed = epsilon([segment(2.0, 1, 100, 10, sampling="fixed_size")], 1e-5, "pld")
    assert fixed.accountant == "rdp"
    assert "without replacement" in fixed.note


def test_if_nobody_answers_the_worst_case_does(monkeypatch):
    class Silent:
        def __init__(self, name):
            self.name = self.title = name

        def epsilon(self, counts, delta):
            raise CannotAnswerError("no")

    silent = {"gaussian": GaussianAccountant(), "pld": Silent("pld"), "rdp": Silent("rdp")}
    monkeypatch.setattr(choose, "_ACCOUNTANTS", silent)
    answer = epsilon([segment(1.0, 1, 100, 1)], 1e-5)
    assert answer.accountant == "worst_case"
    assert answer.epsilon == pytest.approx(4.377178, abs=1e-6)
    assert "cannot answer" in answer.note


def test_pairs_without_an_analysis_are_rejected():
    for sampling, adjacency in [
        ("poisson", "replace_one"),
        ("poisson", "zero_out"),
        ("fixed_size", "add_or_remove_one"),
        ("none", "add_or_remove_one"),
        ("poisson", "nearby"),
    ]:
        with pytest.raises(ValueError, match="no known analysis"):
            StepSettings(100, 10, 1.0, 1.0, sampling, adjacency)
    with pytest.raises(ValueError, match="sampling must be one of"):
        StepSettings(100, 10, 1.0, 1.0, "weighted")


def test_adjacencies_do_not_mix():
    poisson = segment(1.0, 10, 100, 5)
    fixed = segment(1.0, 10, 100, 5, sampling="fixed_size")
    passes = segment(1.0, 10, 100, 5, sampling="none")
    with pytest.raises(ValueError, match="cannot be composed"):
        epsilon([poisson, fixed], 1e-5)
    assert common_adjacency([poisson, passes]) == "zero_out"
    assert auto(poisson, passes) > auto(passes)


def test_replacing_one_example_costs_twice_the_sensitivity():
    replaced = segment(2.0, 100, 100, 1, adjacency="replace_one")
    assert auto(replaced) == pytest.approx(auto(segment(1.0, 100, 100, 1)))


def test_unsampled_passes_count_what_has_begun():
    settings = StepSettings(100, 30, 1.0, 1.0, "none")
    assert [settings.exposures(steps) for steps in (0, 1, 3, 4, 6, 7)] == [0, 1, 1, 2, 2, 3]
    anywhere = StepSettings(100, 30, 1.0, 1.0, "arbitrary")
    assert anywhere.exposures(7) == 7
    two_runs = [Segment(settings, 1), Segment(settings, 1)]
    assert auto(*two_runs) == pytest.approx(auto(Segment(anywhere, 2)))


def test_closed_form_inverts_itself_and_rounds_up():
    for mu in (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3):
        for delta in (1e-15, 1e-9, 1e-5, 1e-2, 0.5):
            found = epsilon_of_mu(mu, delta)
            assert log_delta(found, mu) <= math.log(delta) + 1e-9
            if found > 1e-6:
                assert log_delta(found * (1 - 1e-6), mu) > math.log(delta)


@pytest.mark.parametrize("figure", [epsilon, epsilon_by_accountant])
@pytest.mark.parametrize("delta", [0, 1, -1e-5, 2, math.nan, "1e-5", None, True])
def test_delta_must_be_a_number_between_0_and_1(delta, figure):
    with pytest.raises((ValueError, TypeError), match="delta must lie strictly between 0 and 1"):
        figure([segment(1.0, 1, 100, 1)], delta)


def test_unknown_accountants_are_rejected():
    with pytest.raises(ValueError, match="accountant must be one of auto, gaussian, pld, rdp"):
        epsilon([segment(1.0, 1, 100, 1)], 1e-5, "clt")


def test_rates_near_one_half_are_quick_and_rounded_up():
    """With much noise tensorflow-privacy's series takes seconds at q = 1/2 exactly."""
    _, half = divergences(Mechanism("poisson", 500.0, 50, 100))
    _, more = divergences(Mechanism("poisson", 500.0, 52, 100))
    _, less = divergences(Mechanism("poisson", 500.0, 48, 100))
    assert np.all(less <= half) and np.all(half <= more)


def test_the_switch_for_tensorflow_privacy_stands_in_one_file():
    package = Path(privacy.__file__).parent.parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "skip_tf_privacy_import" in path.read_text(encoding="utf-8")
    }
    assert found == {"privacy/accounting/tensorflow_privacy.py"}


def test_only_the_noise_needs_tensorflow():
    folder = Path(privacy.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert path.name == "noise.py" or not imported & {"tensorflow", "keras"}, path
