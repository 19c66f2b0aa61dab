"""User-level privacy: users are sampled, and the sum of the gradients of a user is clipped."""

import numpy as np
import pytest

import tfdp
from tests.training.models import classifier, compiled, flat_model, linear_sum, separable
from tfdp.privacy.noise import NoiseKey
from tfdp.sampling import PoissonSampler


def plan(users, batch, steps=1, clip=1.0, noise=0.0, unit=4, **more):
    return tfdp.PrivacyPlan(
        users,
        batch,
        steps,
        clip,
        noise_multiplier=noise,
        delta=1e-5,
        examples_per_user=unit,
        **more,
    )


def moved(ids, features, p, **kwargs):
    """By how much one step moves the one weight per feature from zero."""
    model = compiled(flat_model(features.shape[1]), p, loss=linear_sum, **kwargs)
    model.fit(features, np.zeros(len(features), "float32"), user_ids=ids, verbose=0)
    return model.get_weights()[0][:, 0], model


@pytest.mark.parametrize("engine", ["single_pass", "vectorized"])
@pytest.mark.parametrize("microbatch_size", [4, 9, 64])
def test_the_sum_over_a_users_examples_is_clipped(engine, microbatch_size):
    """E11: examples (1, 0) x 5 of user 0, of which 4 count, and (0, 0.3) of user 1."""
    features = np.array([[1, 0]] * 5 + [[0, 0.3]], "float32")
    ids = np.array([0] * 5 + [1])
    weights, model = moved(
        ids, features, plan(2, 2), engine=engine, microbatch_size=microbatch_size
    )
    np.testing.assert_allclose(weights, [-1 / 2, -0.3 / 2], rtol=1e-5)
    loose, _ = moved(ids, features, plan(2, 2, clip=100.0), engine=engine)
    np.testing.assert_allclose(loose, [-4 / 2, -0.3 / 2], rtol=1e-5)
    counts = model.privacy_report()["counts"]
    assert counts["examples_used"] == 5
    assert counts["examples_beyond_examples_per_user"] == 1


def test_users_are_sampled_with_all_their_examples():
    """Users have 1 to 4 examples, each of which adds 0.01: no clipping, sums can be counted."""
    sizes = np.arange(40) % 4 + 1
    ids = np.repeat(np.arange(40), sizes)
    features = np.full((len(ids), 1), 0.01, "float32")
    key = NoiseKey.from_seed(7).child("sampling").as_int()
    sampler = PoissonSampler(40, 0.2, key)
    weights, model = moved(ids, features, plan(40, 8, steps=3))
    drawn = sum(sizes[sampler.indices(step)].sum() for step in range(3))
    assert weights[0] == pytest.approx(-0.01 * drawn / 8, rel=1e-5)
    assert model.privacy_report()["counts"]["examples_used"] == drawn


def test_one_example_per_user_is_example_level_training():
    features, labels = separable(100)
    whole = []
    for unit, ids in ((None, None), (1, np.arange(100)), (3, np.arange(100))):
        model = compiled(classifier(), plan(100, 10, steps=4, clip=0.5, unit=unit))
        model.fit(features, labels, user_ids=ids, verbose=0)
        whole.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_allclose(whole[1], whole[0], atol=1e-6)
    np.testing.assert_allclose(whole[2], whole[0], atol=1e-6)


def test_the_report_names_users_and_counts_them():
    features, labels = separable(100)
    p = plan(20, 4, steps=3, noise=1.0, unit=5)
    model = compiled(classifier(), p)
    model.fit(features, labels, user_ids=np.arange(100) % 20, verbose=0)
    report = model.privacy_report()
    assert report["unit"].startswith("one user: all examples with one user id")
    assert (report["num_examples"], report["expected_batch_size"]) == (20, 4)
    assert report["epsilon"] == p.epsilon
    assert "users who belong together" in report.summary_text()


def test_secure_noise_works_with_user_level_privacy():
    ids = np.repeat(np.arange(64), 2)
    zeros = np.zeros((128, 200), "float32")
    model = compiled(
        flat_model(200, 500),
        plan(64, 64, noise=1.5, unit=2, secure=True),
        loss=linear_sum,
        seed=None,
    )
    model.fit(zeros, zeros[:, 0], user_ids=ids, verbose=0)
    # 100,000 coordinates: five standard errors are 1.1 %.
    assert model.get_weights()[0].std() == pytest.approx(1.5 / 64, rel=0.0112)


def test_plans_and_user_ids_that_disagree_are_rejected_before_the_first_step():
    features, labels = separable(100)
    ids = np.arange(100) % 20
    example = tfdp.PrivacyPlan(100, 10, 1, 1.0, noise_multiplier=1.0, delta=1e-5)
    user = plan(20, 4, noise=1.0)
    for p, kwargs, message in (
        (user, {}, "pass user_ids"),
        (example, {"user_ids": ids}, "plan with examples_per_user"),
        (user, {"user_ids": ids[:50]}, "50 ids for 100 examples"),
        (plan(21, 4, noise=1.0, sampling="fixed_size"), {"user_ids": ids}, "21 users"),
    ):
        model = compiled(classifier(), p)
        with pytest.raises(ValueError, match=message):
            model.fit(features, labels, verbose=0, **kwargs)
        assert model.ledger.steps == 0
    model = compiled(classifier(), user, microbatch_size=3)
    with pytest.raises(ValueError, match="microbatch_size=3 is smaller than examples_per_user=4"):
        model.fit(features, labels, user_ids=ids, verbose=0)
    assert model.ledger.steps == 0
    with pytest.warns(UserWarning, match="num_examples=40 and the data hold 20 users"):
        compiled(classifier(), plan(40, 4, noise=1.0)).fit(
            features, labels, user_ids=ids, verbose=0
        )


def test_several_devices_give_what_one_gives(run_in_fork):
    code = """
        import numpy as np
        import tfdp
        from tests.training.models import classifier, compiled, separable
        plan = tfdp.PrivacyPlan(
            20, 6, 5, 0.5, noise_multiplier=0.0, delta=1e-5, examples_per_user=4
        )
        features, labels = separable(100)
        strategy = tfdp.choose_strategy("mirrored")
        with strategy.scope():
            model = compiled(classifier(), plan, microbatch_size=8)
        model.fit(features, labels, user_ids=np.arange(100) % 20, verbose=0)
        weights = np.concatenate([w.ravel() for w in model.get_weights()])
        print(strategy.num_replicas_in_sync, *weights)
        """
    one, two = (
        [float(v) for v in run_in_fork(code, devices=n).strip().splitlines()[-1].split()]
        for n in (1, 2)
    )
    assert (one[0], two[0]) == (1, 2)
    assert one[1:] == pytest.approx(two[1:], abs=1e-6)
