"""Several runs together: composed by the accountants, copies counted once, public data free."""

import json
import math

import pytest

from tfdp.privacy import (
    PUBLIC,
    Ledger,
    PrivacyPlan,
    Segment,
    StepSettings,
    compose,
    epsilon,
    noise_for_epsilon,
)
from tfdp.privacy.ledger import LedgerError


def plan(noise=1.0, batch=1, steps=500, **more):
    return PrivacyPlan(100, batch, steps, 1.0, noise_multiplier=noise, delta=1e-5, **more)


def ledger_of(p, steps, path=None):
    ledger = Ledger(path)
    for _ in range(steps):
        ledger.record(p.settings)
    return ledger


def test_runs_compose_by_their_loss_distributions_not_by_adding_epsilons():
    together = compose([plan(), plan(noise=2.0, batch=2)], 1e-5)
    assert together.epsilon == pytest.approx(1.6151, abs=1e-4)
    assert together.by_accountant["rdp"] == pytest.approx(1.8946, abs=1e-4)
    assert sum(part.epsilon for part in together.parts) == pytest.approx(2.2470, abs=1e-3)
    assert together.guarantee.accountant == "pld"


def test_the_models_of_a_search_cost_what_all_their_steps_cost():
    search = {f"rate {rate}": ledger_of(plan(), 5) for rate in (0.1, 0.3, 1.0)}
    together = compose(search, 1e-5, "rdp")
    assert together.epsilon == epsilon([Segment(plan().settings, 15)], 1e-5, "rdp").epsilon
    assert [part.steps for part in together.parts] == [5, 5, 5]
    assert "rate 0.3" in str(together) and "alone epsilon" in str(together)
    rest = noise_for_epsilon(
        8.0, 1e-5, plan().settings, 10, accountant="rdp", spent=together.segments
    )
    assert rest > 0


def test_copies_of_a_ledger_count_once(tmp_path):
    ledger = ledger_of(plan(), 3, tmp_path)
    copy = Ledger.from_dict(ledger.to_dict())
    ledger.record(plan().settings)
    together = compose([ledger, copy, tmp_path, str(tmp_path / "ledger.jsonl")], 1e-5, "rdp")
    assert sum(segment.steps for segment in together.segments) == 4
    assert [part.counted_before for part in together.parts] == [False, True, True, True]
    assert "some of them counted in an earlier part" in str(together)
    ledger.close()


def test_public_data_are_free_and_named():
    together = compose({"web captions": PUBLIC, "private": ledger_of(plan(), 2)}, 1e-5, "rdp")
    assert together.epsilon == epsilon([Segment(plan().settings, 2)], 1e-5, "rdp").epsilon
    assert together.parts[0].public
    assert "web captions  public data: spends no privacy" in str(together)
    assert compose({"only": PUBLIC}, 1e-5).epsilon == 0.0


def test_values_survive_json():
    together = compose([plan(noise=0.0), PUBLIC], 1e-5)
    values = json.loads(json.dumps(together.to_dict(), allow_nan=False))
    assert values["epsilon"] == "inf" and together.epsilon == math.inf
    assert [part["public"] for part in values["parts"]] == [False, True]
    assert values["adjacency"] == "add_or_remove_one"


def test_what_cannot_be_composed_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="cannot be composed"):
        compose([plan(), plan(sampling="fixed_size", batch=2)], 1e-5)
    with pytest.raises(ValueError, match="one user cannot be composed"):
        compose([plan(), plan(examples_per_user=2)], 1e-5)
    with pytest.raises(TypeError, match="expected ledgers"):
        compose([3], 1e-5)
    with pytest.raises(TypeError, match="expected ledgers"):
        compose([[Segment(StepSettings(9, 3, 1.0, 1.0), 1), 4]], 1e-5)
    with pytest.raises(FileNotFoundError):
        compose([tmp_path / "nowhere"], 1e-5)
    (tmp_path / "ledger.jsonl").write_text("not one")
    with pytest.raises(LedgerError):
        compose([tmp_path], 1e-5)
    with pytest.raises(ValueError, match="delta must lie"):
        compose([plan()], 2.0)
