"""No method publishes a sum that one row moves by more than it says."""

import dataclasses

import numpy as np
import pytest

from tests.transfer.recorder import asked
from tests.transfer.tables import clusters
from tfdp.transfer import METHODS, FullBatch, OneStep, Preparation, Steps

CLASSES, DIM, ROWS = 4, 7, 60


class _BiasedBalanced(FullBatch):
    preparation = Preparation("unit", center="private", balance=True, bias=1.0)


VARIANTS = {
    **{name: maker() for name, maker in METHODS.items() if name != "logistic"},
    "sigmoid with fixed bias": OneStep(loss="sigmoid", fixed_bias=-10.0),
    "bias, balance, sigmoid": _BiasedBalanced(Steps(steps=3, loss="sigmoid", init=0.1)),
    "adam": FullBatch(Steps(steps=3, optimizer="adam", clip_norm=0.5)),
    "lamb": FullBatch(Steps(steps=3, optimizer="lamb", init=1e-3, average=0.5)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_removing_an_example_moves_every_released_sum_by_at_most_the_sensitivity(name):
    x, y = clusters(ROWS, DIM, CLASSES)
    x[0] *= 50  # a row that stands out
    whole = asked(VARIANTS[name], x, y, CLASSES, ROWS)
    largest: dict[str, float] = {}
    for left_out in (0, 1, 2, 31):
        kept = np.delete(np.arange(ROWS), left_out)
        part = asked(VARIANTS[name], x[kept], y[kept], CLASSES, ROWS)
        assert len(part.asked) == len(whole.asked)
        for (release, bound, ours), (_, theirs_bound, theirs) in zip(
            whole.asked, part.asked, strict=True
        ):
            assert bound == theirs_bound
            moved = np.linalg.norm(ours - theirs)
            assert moved <= bound * (1 + 1e-4) + 1e-5, release
            largest[release] = max(largest.get(release, 0), moved / bound)
    # The bounds are not idle either: some row comes near each of them.
    assert min(largest.values()) > 0.3, largest


@pytest.mark.parametrize("name", VARIANTS)
def test_divisors_are_the_public_number_whatever_the_rows(name):
    """A12: the mean is over the stated number of examples, not over the rows that came."""
    x, y = clusters(ROWS, DIM, CLASSES)
    for rows in (ROWS, ROWS - 1):
        recorder = asked(VARIANTS[name], x[:rows], y[:rows], CLASSES, ROWS)
        assert recorder.divisors <= {1.0, ROWS}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_release_is_made_as_often_as_planned(name):
    recorder = asked(VARIANTS[name], *clusters(ROWS, DIM, CLASSES), CLASSES, ROWS)
    for line in recorder.table():
        assert line["made"] == line["planned"], line
    assert sum(line["share"] for line in recorder.table()) == pytest.approx(1.0)


def test_weights_that_lift_a_class_are_clipped_with_it():
    """A row's contribution is bounded after its class weight, not before."""
    x, y = clusters(ROWS, DIM, CLASSES)
    method = dataclasses.replace(FullBatch(Steps(steps=1, clip_norm=0.2)))
    recorder = asked(method, x, y, CLASSES, ROWS)
    assert recorder.asked[-1][1] == 0.2
