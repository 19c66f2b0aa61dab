"""How many rows a replica handles at a time."""

import numpy as np
import pytest

import tfdp
import tfdp.clipping.microbatch_size as microbatch_size
from tests.training.models import classifier, compiled, separable
from tfdp.clipping.microbatch_size import Device
from tfdp.data import ArraySource


class Watched(ArraySource):
    """Notes how many rows are asked for at a time."""

    def fetch(self, indices, step):
        self.sizes = [*getattr(self, "sizes", []), indices.shape[0]]
        return super().fetch(indices, step)


def trained(plan, user_ids=None, **options):
    """The sizes of the microbatches, and the weights after training."""
    source = Watched(*separable(rows=400))
    model = compiled(classifier(), plan, **options)
    model.fit(source, verbose=0, user_ids=user_ids)
    return source.sizes[-1], model.get_weights()


def plan(**options):
    settings = {"num_examples": 400, "batch_size": 100, "noise_multiplier": 1.0, "delta": 1e-3}
    return tfdp.PrivacyPlan(steps=3, clip_norm=1.0, **{**settings, **options})


def test_microbatches_chosen_by_memory_change_nothing_but_their_size(monkeypatch):
    size, whole = trained(plan())
    assert 100 < size <= 160  # nearly every draw, 100 +- 9, goes at once
    monkeypatch.setattr(microbatch_size, "_CPU", Device(limit=5000, overhead=0))
    small, parts = trained(plan())
    assert small < 20
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_full_batch_goes_without_padding():
    assert trained(plan(batch_size=400, sampling="full_batch"))[0] == 400


def test_what_compile_asks_for_is_taken():
    assert trained(plan(), microbatch_size=37)[0] == 37


@pytest.mark.parametrize("limit", [1, 2**30])
def test_microbatches_hold_whole_users(limit, monkeypatch):
    monkeypatch.setattr(microbatch_size, "_CPU", Device(limit=limit, overhead=2**24))
    users = plan(num_examples=100, batch_size=20, examples_per_user=4)
    size, _ = trained(users, user_ids=np.arange(400) // 4)
    assert size % 4 == 0
    assert size == 4 if limit == 1 else 80 < size <= 160
