"""configs/dpcap.py states the published runs."""

import pytest

from configs import dpcap
from tfdp.captioner import CaptionerConfig, count_parameters
from tfdp.privacy import PrivacyPlan

# The published delta is 1 / N itself, of which a plan warns.
pytestmark = pytest.mark.filterwarnings("ignore:delta .* is not below 1/num_examples")


@pytest.mark.parametrize("size", ["nano", "tiny", "small", "base", "large"])
@pytest.mark.parametrize("run", ["", *(f"_{run}" for run in dpcap.RUNS)])
def test_every_run_describes_a_model_and_a_plan(size, run):
    config = dpcap.get_config(size + run)
    assert CaptionerConfig(**config.model) == CaptionerConfig.dpcap(size)
    assert PrivacyPlan(**config.privacy).steps == config.privacy.steps


def test_the_main_run():
    config = dpcap.get_config()
    assert config == dpcap.get_config("base_eps8")
    assert count_parameters(CaptionerConfig(**config.model)) == 189_774_138
    assert config.privacy.to_dict() == {
        "num_examples": 233_804_767,
        "batch_size": 1_310_720,
        "steps": 5_708,
        "clip_norm": 1.0,
        "epsilon": None,
        "delta": 1 / 233_804_767,
        "noise_multiplier": 0.728,
    }
    plan = PrivacyPlan(**config.privacy)
    assert plan.guarantee(accountant="rdp").epsilon == pytest.approx(8.05, abs=0.005)
    assert plan.guarantee(accountant="pld").epsilon == pytest.approx(7.34, abs=0.005)


def test_published_training_settings():
    config = dpcap.get_config("base_eps2")
    assert (config.privacy.noise_multiplier, config.privacy.steps) == (1.18, 2_854)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.learning_rate) == ("adamw", 5.12e-4)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.95, 1e-8)
    assert (optimizer.weight_decay, optimizer.warmup_steps) == (0.005, 2_000)
    assert optimizer.decay_steps == 10_000


@pytest.mark.parametrize("arg", ["", "huge", "base_eps3", "base-eps2", "eps2"])
def test_unknown_argument_lists_the_choices(arg):
    with pytest.raises(ValueError, match="nano, tiny, small, base, large.*eps8, eps2, eps1, 200k"):
        dpcap.get_config(arg)


def test_a_misspelt_key_is_rejected():
    with pytest.raises(AttributeError):
        dpcap.get_config("nano").privacy.noise = 1.0
