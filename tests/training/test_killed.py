"""Training killed with SIGKILL at every kind of moment: what is counted, what is drawn again.

The long form, with real launches, is ``python -m tests.kill``.
"""

import json

import pytest

from tests.conftest import fork_output


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    output = fork_output("tests.training.killed_case", str(folder), "11", timeout=1200)
    found = {}
    for line in output.splitlines():
        found |= json.loads(line)
    return found


STEPS = 24  # of killed_case


def kills(run):
    assert run["errors"] == []
    assert set(run["statuses"][:-1]) <= {-9, 0} and run["statuses"][-1] == 0
    return run["statuses"].count(-9)


def test_the_kills_fall_on_every_kind_of_boundary_and_on_moments_between(facts):
    seeded, entropy = facts["seeded"], facts["entropy"]
    assert kills(seeded) >= 13 and kills(entropy) >= 4
    places = {place.split()[1] for place in seeded["deaths"] + entropy["deaths"]}
    assert len(places) >= 5  # of writing, flushing, renaming, checkpoints and releases
    assert len(seeded["deaths"]) < kills(seeded), "some deaths came from outside"


def test_a_seeded_run_killed_over_and_over_ends_with_the_weights_of_an_uninterrupted_one(facts):
    """F2."""
    assert facts["seeded"]["weights"] == facts["whole"]["weights"]
    assert facts["seeded"]["ledger"] == facts["whole"]["ledger"] == STEPS


def test_seeded_steps_that_are_made_again_are_the_same_releases(facts):
    releases = facts["seeded"]["released"]
    assert len(releases) > STEPS, "no step was lost and made again"
    assert {tuple(r) for r in releases} == {tuple(r) for r in facts["whole"]["released"]}
    assert len({noise for _, noise, _ in facts["whole"]["released"]}) == STEPS


def test_noise_from_entropy_is_never_replayed(facts):
    releases = facts["entropy"]["released"]
    assert len({noise for _, noise, _ in releases}) == len(releases)


def test_the_ledger_counts_all_that_could_be_seen_and_at_most_one_more_a_kill(facts):
    for name in ("seeded", "entropy"):
        run = facts[name]
        for life, (released, counted, restored) in enumerate(run["lives"]):
            # A repeated release of a seeded run is no new one.
            seen = len({tuple(r) for r in run["released"][: int(released)]})
            assert seen <= int(counted) <= seen + life
            assert restored == "True" or int(counted) == 0
    assert facts["entropy"]["ledger"] == STEPS  # the budget is a wall
