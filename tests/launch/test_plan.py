"""`python -m launch.plan`: what a run costs, before it runs."""

import re

import pytest

from tests.conftest import child_code
from tests.forks import Fork

DPCAP = "--config=configs/dpcap.py:base"
QUICK = "--config=configs/quickstart.py"

RIGHT = {
    "dpcap": [DPCAP],
    "quickstart": [QUICK],
    "full batch": [QUICK, "--config.privacy.batch_size=500", "--config.privacy.num_examples=500"],
    "large delta": [QUICK, "--config.privacy.delta=0.001", "--config.privacy.steps=1"],
    "no noise": [DPCAP, "--config.privacy.noise_multiplier=0"],
}
WRONG = {
    "batch above N": (
        [QUICK, "--config.privacy.num_examples=1000", "--config.privacy.batch_size=2048"],
        "batch_size 2048 is larger than num_examples 1000",
    ),
    "epsilon": ([QUICK, "--config.privacy.epsilon=-1"], "epsilon must be a finite number above 0"),
    "both": ([DPCAP, "--config.privacy.epsilon=8"], "exactly one of epsilon and noise_multiplier"),
    "misspelt key": (
        [QUICK, "--config.privacy.batchsize=8"],
        "the config has no key 'batchsize'; did you mean 'batch_size'?",
    ),
    "unknown section": ([QUICK, "--config.pirvacy.steps=8"], "the config has no key 'pirvacy'"),
    "unknown flag": ([QUICK, "--workdri=x"], "Unknown command line flag 'workdri'"),
    "no number": ([QUICK, "--config.privacy.steps=many"], "steps=many"),
    "microbatch": (
        [QUICK, "--config.training.microbatch_size=0"],
        "config.training.microbatch_size must be a whole number of at least 1, got 0",
    ),
    "model": ([QUICK, "--config.model.patch_size=7"], "not a multiple of patch_size 7"),
    "no file": (["--config=configs/nowhere.py"], "there is no file configs/nowhere.py"),
    "no config": ([], "--config is missing"),
    "another program's": (
        ["--config=configs/last_layer/cifar10.py"],
        "the config has no privacy, model, data, training: was it written for another program?",
    ),
    "argument": ([QUICK, "steps=3"], "unexpected argument 'steps=3'"),
    "size": (["--config=configs/dpcap.py:huge"], "configs/dpcap.py has no 'huge'"),
}


@pytest.fixture(scope="module")
def results():
    """Exit code, output and errors of each case, by name."""
    cases = {**RIGHT, **{name: arguments for name, (arguments, _) in WRONG.items()}}
    program = child_code("launch.plan")
    return {name: Fork(program, *arguments).outcome() for name, arguments in cases.items()}


def row(text, name):
    found = re.search(rf"^  {re.escape(name)} +(.*)$", text, re.MULTILINE)
    assert found, f"no row {name!r} in\n{text}"
    return found[1]


def table(text):
    """The table of epsilon: steps -> (RDP, PLD)."""
    rows = re.findall(r"^ +([\d,]+) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    return {int(n.replace(",", "")): (float(rdp), float(pld)) for n, rdp, pld in rows}


@pytest.mark.parametrize("name", RIGHT)
def test_possible_settings_end_well(name, results):
    code, out, _ = results[name]
    assert code == 0
    assert "Traceback" not in out


def test_the_published_run_is_8_05_by_rdp_and_7_34_by_pld(results):
    out = results["dpcap"][1]
    assert row(out, "noise multiplier sigma") == "0.728"
    assert table(out)[5708] == (8.05, 7.34)
    assert row(out, "trainable parameters") == "189,774,138"
    assert row(out, "sampling") == "poisson, q = 1,310,720/233,804,767 = 0.005606"
    assert row(out, "guarantee").startswith("epsilon 7.34 at delta 4.277e-09 by PLD")
    assert row(out, "expected batch size").startswith("1,310,720 examples")


def test_epsilon_grows_with_steps(results):
    figures = list(table(results["dpcap"][1]).values())
    assert len(figures) == 7
    assert figures == sorted(figures)
    assert all(pld <= rdp for rdp, pld in figures)


def test_calibrated_noise_ends_at_the_target(results):
    out = results["quickstart"][1]
    assert float(row(out, "target epsilon")) == 8.0
    assert 7.9 <= max(table(out).values())[1] <= 8.0


def test_estimates_say_how_they_were_made(results):
    out = results["quickstart"][1]
    assert "activations for" in row(out, "bytes per microbatch")
    assert "forward and backward" in row(out, "FLOPs per step")
    assert "at least once" in row(out, "expected coverage")


def test_a_config_without_vocabulary_is_sized_for_the_packaged_words(results):
    assert row(results["quickstart"][1], "vocabulary") < "30,522 ids"
    assert row(results["dpcap"][1], "vocabulary") == "30,522 ids"


def test_a_clip_norm_that_follows_a_quantile_leaves_the_sum_more_noise(tmp_path):
    file = tmp_path / "quantile.py"
    file.write_text(
        "from configs import quickstart\n\n\ndef get_config():\n"
        "    config = quickstart.get_config().unlock()\n"
        "    config.privacy.clipping = {'kind': 'quantile'}\n    return config\n"
    )
    code, out, _ = Fork(child_code("launch.plan"), f"--config={file}").outcome()
    assert code == 0
    sigma = float(row(out, "noise multiplier sigma"))
    noise = row(out, "noise on the clipped sum")
    on_sum, on_count = map(
        float, re.findall(r"([\d.]+)(?:, clip norm 1 at the start| on the co)", noise)
    )
    assert sigma < on_sum
    assert on_sum**-2 + (2 * on_count) ** -2 == pytest.approx(sigma**-2, rel=1e-5)


def test_the_full_batch_is_exact(results):
    out = results["full batch"][1]
    assert row(out, "sampling").startswith("full_batch, q = 500/500 = 1")
    assert "exact Gaussian" in row(out, "guarantee")


def test_doubtful_settings_are_warned_about(results):
    assert "warning: delta 0.001 is not below 1/num_examples" in results["large delta"][1]
    out = results["no noise"][1]
    assert "warning: noise_multiplier is 0: epsilon is infinite" in out
    assert row(out, "guarantee").startswith("epsilon inf")


@pytest.mark.parametrize("name", WRONG)
def test_impossible_settings_get_one_line_and_exit_code_1(name, results):
    code, out, errors = results[name]
    message = WRONG[name][1]
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert code == 1
    assert out == ""
    assert len(lines) == 1 and message in lines[0]
    assert "Traceback" not in errors
