"""Every layer of Keras, KerasCV and KerasHub is tried, and stands in a table (layer_table.csv)."""

import pytest

from tests.clipping.layer_trials import LIBRARIES, groups_of, layers_of, read_table, verdicts

TABLE = read_table()


def named(trials):
    return f"{trials[0].library}: {', '.join(trial.made for trial in trials)}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trials", groups_of(TABLE), ids=named)
def test_the_table_says_of_every_layer_what_trying_it_shows(trials):
    found = zip(trials, verdicts(trials), strict=True)
    assert [(trial.made, told) for trial, told in found if not same(told, trial.verdict)] == []


def same(one, other):
    """Whether two verdicts agree. Some layers fail only at times before they are rejected."""
    return one == other or {one, other} == {"fails", "rejected"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_layer_stands_in_the_table(library):
    tried = {trial.layer for trial in TABLE if trial.library == library}
    missing = layers_of(library) - tried
    assert not missing
    assert all(f"{trial.layer}(" in trial.made for trial in TABLE)


def test_what_is_not_safe_says_why():
    assert all(trial.note for trial in TABLE if trial.verdict != "safe")


def test_trying_tells_layers_that_mix_from_those_that_do_not():
    found = {(trial.layer, trial.verdict) for trial in TABLE if trial.library == "keras"}
    assert {("Equalization", "mapped"), ("RandAugment", "mapped"), ("MixUp", "rejected")} <= found
    assert {("BatchNormalization", "rejected"), ("LayerNormalization", "safe")} <= found
