"""The plan: its numbers agree, and settings that cannot be are refused at once."""

import dataclasses
import json
import math
import re
import warnings

import numpy as np
import pytest

from tfdp.privacy import PrivacyPlan, Segment, StepSettings
from tfdp.privacy.interpretation import steps_for_epochs


def plan(**changes):
    values = {
        "num_examples": 60_000,
        "batch_size": 256,
        "steps": 1170,
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
    }
    return PrivacyPlan(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 60_001}, "batch_size 60001 is larger than num_examples 60000"),
        ({"noise_multiplier": -0.1}, "noise_multiplier must be a finite number of at least 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be a finite number"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be a finite number"),
        ({"noise_multiplier": "1"}, "noise_multiplier must be a finite number"),
        ({"noise_multiplier": None}, "give exactly one of epsilon and noise_multiplier"),
        ({"epsilon": 8.0}, "give exactly one of epsilon and noise_multiplier"),
        ({"noise_multiplier": None, "epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"noise_multiplier": None, "epsilon": -1}, "epsilon must be a finite number above 0"),
        ({"noise_multiplier": None, "epsilon": math.inf}, "epsilon must be a finite number"),
        ({"noise_multiplier": None, "epsilon": 8, "delta": None}, "epsilon needs a delta"),
        ({"clip_norm": 0}, "clip_norm must be a finite number above 0"),
        ({"clip_norm": math.inf}, "clip_norm must be a finite number above 0"),
        ({"clip_norm": -1.0}, "clip_norm must be a finite number above 0"),
        ({"clip_norm": None}, "clip_norm must be a finite number above 0"),
        ({"clip_norm": {}}, "clip_norm={}: expected the clip norm of one layer or more"),
        ({"clip_norm": {"a": "b"}}, "clip_norm['a'] must be a finite number above 0, got 'b'"),
        ({"clip_norm": {1: 2.0}}, "the path 1 in clip_norm must be a str, got 1"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"steps": 10.0}, "steps must be a whole number of at least 1"),
        ({"steps": True}, "steps must be a whole number of at least 1"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1"),
        ({"num_examples": -5}, "num_examples must be a whole number of at least 1"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"accountant": "clt"}, "accountant must be one of"),
        ({"sampling": "shuffle"}, "sampling must be one of"),
        ({"sampling": "full_batch"}, "sampling 'full_batch' uses all 60000 examples"),
        ({"adjacency": "replace_one"}, "no known analysis"),
    ],
)
def test_impossible_settings_get_one_clear_line(changes, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)


def test_delta_of_one_over_n_warns():
    with pytest.warns(UserWarning, match="delta .* is not below 1/num_examples"):
        plan(delta=1 / 60_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(delta=0.99 / 60_000)


def test_no_noise_is_allowed_and_infinite():
    assert plan(noise_multiplier=0).epsilon == math.inf
    assert plan(noise_multiplier=0, delta=None).noise_multiplier == 0


def test_without_delta_there_is_a_plan_but_no_epsilon():
    bare = plan(delta=None)
    assert bare.settings.noise_multiplier == 1.0
    with pytest.raises(ValueError, match="give the plan its delta"):
        bare.epsilon  # noqa: B018


def test_a_batch_of_everything_is_the_full_batch():
    full = plan(batch_size=60_000, steps=100, noise_multiplier=10)
    assert full.sampling == "full_batch"
    assert full.sampling_probability == 1.0
    assert full.epsilon == pytest.approx(4.377178, abs=1e-6)
    assert full.guarantee().accountant == "gaussian"


def test_numbers_follow_from_each_other():
    p = plan()
    assert p.sampling_probability == 256 / 60_000
    assert p.adjacency == "add_or_remove_one"
    assert p.epsilon == pytest.approx(0.7834, abs=1e-4)
    assert p.epsilon_after(0) == 0.0
    assert p.epsilon_after(400) == pytest.approx(0.4857, abs=1e-4)
    assert p.epsilon_after(400, "rdp") == pytest.approx(0.9683, abs=1e-4)
    assert p.epsilon_after(2340) == pytest.approx(1.0990, abs=1e-4), "also beyond the plan"
    assert plan(accountant="rdp").epsilon == pytest.approx(1.1322, abs=1e-4)


def test_the_published_captioner_run():
    examples = 233_804_767
    run = plan(
        num_examples=examples,
        batch_size=1_310_720,
        steps=5708,
        noise_multiplier=0.728,
        delta=1 / (examples + 1),
    )
    assert f"{run.epsilon_after(5708, 'rdp'):.2f}" == "8.05"
    assert f"{run.epsilon:.2f}" == "7.34"


def test_the_divisor_is_the_public_constant():
    """Neighbours N = 3 and N = 2 divide by the same number, whatever batches were drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = plan(num_examples=3, batch_size=2), plan(num_examples=3, batch_size=2)
    assert one.denominator == other.denominator == 2.0
    assert isinstance(plan().denominator, float)
    assert "realized batch size" in " ".join(PrivacyPlan.denominator.__doc__.split())


def test_plans_are_frozen_compare_and_survive_json():
    p = PrivacyPlan(1000, 100, 50, 0.5, epsilon=4, delta=1e-5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.noise_multiplier = 0.1
    back = PrivacyPlan.from_dict(json.loads(json.dumps(p.to_dict())))
    assert back == p and hash(back) == hash(p)
    assert back.noise_multiplier == p.noise_multiplier
    assert back.target_epsilon == 4.0
    full = plan(batch_size=60_000)
    assert PrivacyPlan.from_dict(full.to_dict()) == full


def test_numbers_of_numpy_survive_json():
    p = plan(examples_per_user=np.int64(3), secure=np.True_, batch_size=np.int32(64))
    assert PrivacyPlan.from_dict(json.loads(json.dumps(p.to_dict()))) == p
    assert StepSettings.from_dict(json.loads(json.dumps(p.settings.to_dict()))) == p.settings


def test_epsilon_ignores_the_clip_norm():
    assert plan(clip_norm=0.1).epsilon == plan(clip_norm=7.0).epsilon


def test_bound_for_progress_is_valid_monotone_and_ends_on_the_final_figure():
    p = plan(steps=103)
    bounds = [p.epsilon_bound(step) for step in range(0, 110)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0.0
    assert bounds[103] == p.epsilon
    for step in (1, 50, 99, 109):
        assert bounds[step] >= p.epsilon_after(step)
        assert bounds[step] <= p.epsilon_after(step, "rdp")


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_bound_ends_on_the_final_figure_of_every_accountant(accountant):
    p = plan(accountant=accountant, steps=40)
    assert p.epsilon_bound(40) == p.epsilon == p.epsilon_after(40, accountant)
    assert p.epsilon_bound(39) <= p.epsilon


def test_the_budget_counts_what_has_been_spent():
    p = plan(steps=100)
    assert p.affordable_steps() == 100
    assert p.affordable_steps([Segment(p.settings, 60), Segment(p.settings, 40)]) == 0
    assert p.affordable_steps([Segment(p.settings, 160)]) == 0
    other = StepSettings(60_000, 256, 1.1, 1.0)
    left = p.affordable_steps([Segment(other, 10)])
    assert 0 < left < 100, "the other steps take their share of the same epsilon"
    assert plan(steps=9, noise_multiplier=0).affordable_steps([Segment(other, 10)]) == 9


@pytest.mark.parametrize(
    ("epochs", "examples", "batch", "steps"),
    [(10, 60_000, 256, 2344), (1, 60_000, 250, 240), (0.1, 100, 50, 1), (0.001, 100, 50, 1)],
)
def test_steps_for_epochs_round_up(epochs, examples, batch, steps):
    assert steps_for_epochs(epochs, examples, batch) == steps


def test_a_plan_with_some_settings_changed_keeps_what_was_asked_for():
    noisy = plan()
    assert noisy.replace(steps=7) == plan(steps=7)
    calibrated = plan(noise_multiplier=None, epsilon=5.0)
    longer = calibrated.replace(steps=2000)
    assert longer == plan(noise_multiplier=None, epsilon=5.0, steps=2000)
    assert longer.noise_multiplier > calibrated.noise_multiplier
    assert calibrated.replace(noise_multiplier=2.0) == plan(noise_multiplier=2.0)
    assert noisy.replace(epsilon=5.0) == calibrated
    for either in (noisy, calibrated):
        with pytest.raises(TypeError):
            dataclasses.replace(either, steps=2000)


def test_bounds_by_layer_take_the_place_of_others_and_of_one_for_all():
    by_layer = plan(clip_norm={"encoder": 0.1})
    assert plan().replace(clip_norm={"encoder": 0.1}) == by_layer
    assert by_layer.replace(clip_norm={"head": 0.2}) == plan(clip_norm={"head": 0.2})
    with pytest.raises(ValueError, match="clip_norm by layer means clipping='per_layer'"):
        plan(clipping="quantile").replace(clip_norm={"head": 0.2})
