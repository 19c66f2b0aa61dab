"""A folder holds one run: its settings may not change, and nothing of others is replaced."""

import ml_collections
import pytest

from launch._workdir import Workdir


@pytest.fixture
def config():
    return ml_collections.ConfigDict({"privacy": {"steps": 3}, "evaluation": {"draws": 1}})


def test_a_folder_is_claimed_by_settings_of_which_some_may_change(tmp_path, config):
    workdir = Workdir(str(tmp_path / "run"))
    workdir.claim(config)
    config.evaluation.draws = 2
    workdir.claim(config, may_change=("evaluation",))
    assert '"draws": 2' in workdir.config.read_text()
    config.privacy.steps = 4
    with pytest.raises(ValueError, match=r"config.privacy.steps: 3 there, 4 here\)"):
        workdir.claim(config, may_change=("evaluation",))
    assert '"steps": 3' in workdir.config.read_text()


def test_results_of_something_else_are_not_replaced(tmp_path, config):
    workdir = Workdir(str(tmp_path))
    (tmp_path / "notes.txt").touch()
    (tmp_path / "saved_model").mkdir()
    with pytest.raises(ValueError, match="holds saved_model of something else"):
        workdir.claim(config)
    (tmp_path / "saved_model").rmdir()
    workdir.claim(config)
    (tmp_path / "saved_model").mkdir()
    workdir.claim(config)


@pytest.mark.parametrize("text, message", [('{"privacy": ', "holds no JSON"), ("[]", "not the co")])
def test_a_damaged_config_is_named(tmp_path, config, text, message):
    workdir = Workdir(str(tmp_path))
    workdir.config.write_text(text)
    with pytest.raises(ValueError, match=f"config.json is .*{message}"):
        workdir.claim(config)
    assert workdir.config.read_text() == text
    workdir.features.write_text(text)
    with pytest.raises(ValueError, match="features"):
        workdir.claim_features("0123")
