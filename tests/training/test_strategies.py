"""Several devices give what one gives.

Every case runs in a process of its own, which is killed and fails if it hangs (D7).
"""

import json

import numpy as np
import pytest

import tfdp
from tests.conftest import fork_output

CASE = "tests.training.distributed_case"


def outcome(devices, strategy, case):
    printed = fork_output(CASE, strategy, case, devices=devices)
    return json.loads(printed.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def one():
    """The training run on one device."""
    return outcome(1, "one_device", "train")


@pytest.mark.parametrize("devices", [2, 4])
def test_weights_equal_one_device_at_zero_noise_with_uneven_and_empty_batches(one, devices):
    """D2, D3, D6, E1."""
    many = outcome(devices, "mirrored", "train")
    assert many["replicas"] == devices
    assert one["weights"] == pytest.approx(many["weights"], abs=1e-6)
    assert one["report"] == many["report"]
    assert one["report"]["counts"]["non_finite_examples"] > 0
    assert one["loss"] == pytest.approx(many["loss"], rel=1e-5)  # C15: over all replicas
    assert one["accuracy"] == pytest.approx(many["accuracy"], abs=1e-6)
    assert one["steps"] == many["steps"] == 40
    assert min(one["drawn"]) == 0 and max(one["drawn"]) > 4
    assert one["settings"] != many["settings"]  # microbatches, and so dropout, may be others


@pytest.mark.parametrize("devices", [2, 4])
def test_noise_has_the_same_scale_and_is_drawn_once(devices):
    """D1, D10."""
    many = outcome(devices, "mirrored", "noise")
    # 1.5 * 2 / 64 within 1 %: a false alarm below 1e-40 (a million coordinates).
    assert many["deviation"] == pytest.approx(0.046875, rel=0.01)
    assert many["replica_spread"] == 0


def test_half_precision_on_two_devices_does_what_it_does_on_one():
    """D5."""
    one = outcome(1, "one_device", "half")["moved"]
    two = outcome(2, "mirrored", "half")["moved"]
    assert np.linalg.norm(np.subtract(one, two)) < 0.02 * np.linalg.norm(one)


def test_every_example_draws_its_own_dropout_mask_on_two_devices():
    """C17."""
    two = outcome(2, "mirrored", "dropout")
    assert two["replica_spread"] == 0
    # Of 64 masks a feature passes Binomial(64, 1/2), times 2: mean 1, deviation 1/8. Were the
    # masks of both replicas the same it would be 1/8 * sqrt(2); 200 features tell 5 deviations.
    moved = -np.array(two["moved"])
    assert moved.mean() == pytest.approx(1, abs=5.2 / 8 / 200**0.5)
    assert moved.std() == pytest.approx(0.125, rel=0.26)


@pytest.mark.parametrize("name", ["model_parallel", "sharded", "fsdp"])
def test_splitting_a_model_over_devices_is_rejected_and_the_error_lists_the_strategies(name):
    """D12, D13."""
    with pytest.raises(ValueError, match="one_device, mirrored, multi_worker, tpu"):
        tfdp.choose_strategy(name)


def test_a_model_made_outside_the_strategy_is_rejected_by_name_and_spends_nothing(
    run_in_fork,
):
    printed = run_in_fork(
        """
        import tfdp
        from tests.training.models import classifier, compiled, separable
        plan = tfdp.PrivacyPlan(500, 500, 2, 1.0, noise_multiplier=1.0, delta=1e-5)
        scope = tfdp.choose_strategy("mirrored").scope
        early, late = classifier(), compiled(classifier(), plan)
        for attempt in (lambda: compiled(early, plan), lambda: late.fit(*separable(), verbose=0)):
            try:
                with scope():
                    attempt()
            except ValueError as error:
                print(error)
        print(late.ledger.steps, "steps")
        """,
        devices=2,
    )
    assert printed.count("kernel, were created outside the scope of the MirroredStrategy") == 2
    assert "0 steps" in printed


def test_a_second_strategy_that_tensorflow_confuses_with_the_first_spends_nothing(run_in_fork):
    printed = run_in_fork(
        """
        import tfdp
        from tests.training.models import classifier, compiled, separable
        plan = tfdp.PrivacyPlan(500, 500, 1, 1.0, noise_multiplier=1.0, delta=1e-5)
        for units in (8, 9):
            with tfdp.choose_strategy("mirrored").scope():
                model = compiled(classifier(units=units), plan)
            try:
                model.fit(*separable(), verbose=0)
            except ValueError as error:
                print(error)
            print(model.ledger.steps, "steps")
        """,
        devices=2,
    )
    assert "1 steps\nThe replicas cannot add up" in printed
    assert "create one strategy" in printed and "0 steps" in printed


def test_workers_on_two_machines_agree_with_one_device(run_in_fork):
    printed = run_in_fork("tests.training.two_workers", timeout=240)
    first, second, alone = (json.loads(line) for line in printed.strip().splitlines()[-3:])
    assert first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(alone["weights"], abs=1e-6)
    assert first["noisy"] == second["noisy"]
    # Secure noise is drawn on every worker from one key of the operating system's entropy.
    assert first["secure"] == second["secure"] != alone["secure"]
    assert first["secure"]["deviation"] == pytest.approx(0.046875, rel=0.01)


def test_a_missing_tpu_is_one_clear_message(run_in_fork):
    """D8."""
    printed = run_in_fork(
        """
        import tfdp
        try:
            tfdp.choose_strategy("tpu", tpu="nowhere")
        except ValueError as error:
            print(error)
        """
    )
    assert "no TPU answers" in printed
