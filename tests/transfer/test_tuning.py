"""Studies: tuning that never sees its judges, and results that resume."""

import math

import numpy as np
import pytest

from tests.transfer.tables import clusters
from tfdp.privacy import Segment, epsilon
from tfdp.transfer import Steps, as_table
from tfdp.transfer.fine_tuning import SampledHead, plan_for
from tfdp.transfer.release_budget import whole_budget
from tfdp.transfer.studies import Budget, Candidate, Chosen, fit, tune
from tfdp.transfer.studies.candidates import make_method
from tfdp.transfer.studies.held_out import split

CLASSES, DIM, ROWS = 3, 6, 600
X, Y = clusters(ROWS, DIM, CLASSES, seed=1)
#: The first column numbers the rows.
NUMBERED = np.concatenate([np.arange(ROWS, dtype=np.float32)[:, None], X], axis=1)
BUDGET = Budget(ROWS, CLASSES, 2.0, 1e-5)


def _numbers(rows):
    return np.concatenate([block.features[:, 0] for block in rows.blocks(7)])


def test_held_out_examples_are_not_trained_on():
    """The published code trains on its tuning hold-out."""
    train, judges = split(as_table(NUMBERED, Y, CLASSES), 0.2)
    assert not set(_numbers(train)) & set(_numbers(judges))
    assert sorted([*_numbers(train), *_numbers(judges)]) == list(range(ROWS))
    assert len(judges) == pytest.approx(0.2 * ROWS, rel=0.2)
    np.testing.assert_array_equal(train.labels, Y[_numbers(train).astype(int)])


def test_tuning_trains_on_the_one_part_and_judges_by_the_other(monkeypatch):
    seen = {"trained": [], "judged": []}

    class Head:
        plan = whole_budget(ROWS, 2.0, 1e-5)

        def evaluate(self, rows):
            seen["judged"].append(set(_numbers(rows)))
            return {"accuracy": 0.5}

    def fake_fit(candidate, choice, rows, budget, **kwargs):
        seen["trained"].append(set(_numbers(rows)))
        assert budget.num_examples == 0.9 * ROWS == pytest.approx(len(rows), abs=rows.stray)
        return Head(), 0.0

    monkeypatch.setattr("tfdp.transfer.studies.tuning.fit", fake_fit)
    candidate = Candidate("full_batch", grid={"loop.steps": [1, 2, 3]})
    rows = as_table(NUMBERED, Y, CLASSES)
    for charge in (False, True):
        tune(candidate, rows, BUDGET, charge=charge)
    assert len(seen["trained"]) == 6
    for trained, judged in zip(seen["trained"], seen["judged"], strict=True):
        assert trained and judged and not trained & judged


def test_tuning_finds_the_setting_that_works():
    candidate = Candidate("full_batch", grid={"loop.learning_rate": [1e-9, None, 1e9]})
    chosen, rows, budget = tune(candidate, as_table(X, Y, CLASSES), BUDGET, seed=1)
    assert chosen.settings == {"loop.learning_rate": None}
    assert chosen.runs == 3 and not chosen.charged
    assert len(rows) == ROWS and budget == BUDGET and chosen.share_of_runs == 1


def test_what_tuning_spends_is_stated():
    """Four full-batch runs at s are together one at s / 2."""
    plan = whole_budget(ROWS, 1.0, 1e-5)
    half = whole_budget(ROWS, None, 1e-5, plan.noise_multiplier / 2, "add_or_remove_one")
    assert Chosen({}, (plan,) * 3).epsilon_with(plan) == pytest.approx(half.epsilon, rel=1e-6)
    assert Chosen({}).epsilon_with(plan) == pytest.approx(1.0, abs=1e-4)
    free = whole_budget(ROWS, math.inf, 1e-5)
    assert Chosen({}, (free,)).epsilon_with(free) == math.inf


def test_charged_tuning_shares_the_budget_among_all_runs():
    candidate = Candidate("one_step", grid={"learning_rate": [0.1, 1.0]})
    chosen, rows, budget = tune(candidate, as_table(X, Y, CLASSES), BUDGET, charge=True, seed=1)
    assert chosen.charged and chosen.share_of_runs == 3 and chosen.judging == BUDGET.whole()
    assert len(rows) < ROWS and budget.num_examples == 0.9 * ROWS
    head, seconds = fit(candidate, chosen.settings, rows, budget, runs=3, seed=2)
    assert head.plan.noise_multiplier == pytest.approx(BUDGET.noise_multiplier() * math.sqrt(3))
    assert seconds > 0
    segments = head._spendings[-1].ledger.segments() * 3  # the two trial runs and the final one
    assert epsilon(segments, 1e-5).epsilon == pytest.approx(2.0, rel=1e-3)


def test_what_tuning_spent_can_be_added_to_other_runs():
    sampled = plan_for(SampledHead(batch_size=60, epochs=2), ROWS, 2.0, 1e-5)
    assert Chosen({}, (sampled,) * 3).spent == [Segment(sampled.settings, 3 * 20)]
    # Charged, rows are judged under the budget too, at a cost that no sampled run is sure to hold.
    judged = BUDGET.whole()
    charged = Chosen({}, (sampled,) * 3, True, judged)
    assert charged.spent == [Segment(sampled.settings, 60), Segment(judged.settings, 1)]
    assert Chosen({}, (judged,) * 3, True, judged).spent == [Segment(judged.settings, 3)]


def test_without_a_grid_nothing_is_tuned():
    chosen, rows, _ = tune(Candidate("auto"), as_table(X, Y, CLASSES), BUDGET)
    assert chosen == Chosen({}) and len(rows) == ROWS


def test_settings_reach_their_method():
    method = make_method("full_batch", {"loop.steps": 7, "loop": {"loss": "sigmoid"}})
    assert method.loop == Steps(
        steps=7, loss="sigmoid", clip_norm=0.15, optimizer="momentum", momentum=0.8
    )
    assert make_method("class_least_squares", {"shares": [0.2, 0.3, 0.5]}).shares == (0.2, 0.3, 0.5)
    assert Candidate("full_batch").make({})[1] is None
    own = Candidate("full_batch", preparation={"center": "none"}).make({})[1]
    assert own.normalize == "root" and own.center == "none"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nosuch", {}, "method must be one of"),
        ("full_batch", {"lop.steps": 1}, "has no setting 'lop'; it has loop"),
        ("full_batch", {"loop.step": 1}, "loop has no setting 'step'; it has steps"),
        ("full_batch", {"loop.steps": 0}, "steps must be a whole number of at least 1"),
    ],
)
def test_misspelled_settings_are_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make_method(name, settings)
