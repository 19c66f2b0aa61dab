"""Learning rates of the reference runs."""

import pytest

from tfdp.optimizers import warmup_cosine


def test_dpcap_rate_at_its_last_step_is_0557_of_the_peak():
    schedule = warmup_cosine(5.12e-4, 2000, 10_000)
    assert float(schedule(2000)) == pytest.approx(5.12e-4)
    assert float(schedule(5708)) / 5.12e-4 == pytest.approx(0.557, abs=5e-4)
    assert float(schedule(10_000)) == pytest.approx(0, abs=1e-9)


def test_the_first_step_is_not_wasted_at_rate_zero():
    assert float(warmup_cosine(1.0, 4, 10)(0)) == pytest.approx(0.2)
    assert float(warmup_cosine(1.0, 0, 10)(0)) == 1.0


def test_a_warmup_as_long_as_the_run_is_rejected():
    with pytest.raises(ValueError, match="warmup_steps=10"):
        warmup_cosine(1.0, 10, 10)


def test_a_rate_that_is_no_number_is_named():
    with pytest.raises(TypeError, match="peak must be a finite number above 0, got 'a'"):
        warmup_cosine("a", 2, 10)
