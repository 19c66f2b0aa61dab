"""The main job in small: first run, second run, killed run, and mistakes."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs import quickstart
from tests.conftest import ROOT, child_code
from tests.forks import Fork
from tfdp.privacy import Ledger, PrivacyPlan, verify

STEPS = 20
GOING_ON = r"Continuing: the ledger has (\d+) steps, the weights have (\d+) of them, (\d+) are left"
TINY = [
    "--config=configs/quickstart.py",
    "--config.privacy.batch_size=64",
    f"--config.privacy.steps={STEPS}",
    "--config.model.encoder_width=16",
    "--config.model.encoder_depth=1",
    "--config.model.decoder_width=16",
    "--config.model.decoder_depth=1",
    "--config.model.max_length=6",  # cuts captions
    "--config.training.microbatch_size=64",
    "--config.training.log_every=2",
    "--config.training.checkpoint_seconds=0",
    "--config.optimizer.warmup_steps=1",
    "--config.evaluation.probe_examples=120",
    "--config.evaluation.examples=256",
    "--config.evaluation.shots=(1,)",
    "--config.evaluation.draws=1",
]


def launch(workdir: Path, *flags: str, devices: int = 1) -> Fork:
    return Fork(
        child_code("launch.train_captioner", devices), *TINY, f"--workdir={workdir}", *flags
    )


def outcome(workdir: Path, *flags: str, **kwargs: int) -> tuple[int, str, str]:
    return launch(workdir, *flags, **kwargs).outcome(timeout=400)


def steps(workdir: Path) -> int:
    path = workdir / "ledger.jsonl"
    return Ledger.read(path).steps if path.exists() else 0


def saved_steps(workdir: Path) -> int:
    """The number of the latest checkpoint."""
    files = (workdir / "checkpoints").glob("ckpt-*.index")
    return max(int(file.stem.removeprefix("ckpt-")) for file in files)


def stopped(workdir: Path, number: int, *flags: str) -> tuple[int, str, str]:
    """Sends a run a signal after its third step or later; returns how it ended."""
    process = launch(workdir, *flags)
    deadline = time.monotonic() + 300
    while steps(workdir) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    return process.outcome(timeout=120)


def cut(workdir: Path) -> set[int]:
    """The examples whose captions were cut, by what the workdir keeps."""
    lines = map(json.loads, (workdir / "unreadable.jsonl").read_text().splitlines())
    return {i for line in lines for i in line.get("truncated_captions", {}).get("truncated", ())}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A workdir whose run was killed, and the steps that it holds."""
    workdir = tmp_path_factory.mktemp("run") / "run"
    stopped(workdir, signal.SIGKILL)
    return workdir, steps(workdir), cut(workdir)


@pytest.fixture(scope="module")
def finished(killed):
    """The same run, gone on with by the command as users give it: workdir, output, errors."""
    command = [sys.executable, "-m", "launch.train_captioner", *TINY, f"--workdir={killed[0]}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr
    return killed[0], run.stdout, run.stderr


def test_a_killed_run_goes_on_and_counts_every_step(killed, finished):
    _, killed_at, _ = killed
    workdir, _, err = finished
    assert 3 <= killed_at < STEPS
    counted, there, left = map(int, re.search(GOING_ON, err).groups())
    assert counted == killed_at
    assert there in (counted - 1, counted)  # a checkpoint follows each step
    assert left == STEPS - counted
    assert steps(workdir) == STEPS


def test_captions_cut_before_the_kill_are_in_the_report_and_each_counts_once(killed, finished):
    report = json.loads((finished[0] / "privacy_report.json").read_text())
    assert 0 < len(killed[2]) < len(cut(finished[0])) == report["counts"]["truncated_captions"]
    assert killed[2] < cut(finished[0])


def test_the_run_ends_with_everything_in_the_workdir(finished):
    workdir, out, err = finished
    assert "(epsilon, delta) = (8, 1e-05)" in out
    assert "Poisson" in out and "PLD" in out
    assert re.search(r"Held-out captions: \d\.\d+ nats per token; \d\.\d+ beside other pict", out)
    assert f"{STEPS}/{STEPS}" in err  # the progress bar, with its figures
    assert "epsilon=" in err and "loss=" in err
    report = json.loads((workdir / "privacy_report.json").read_text())
    assert report["steps"] == STEPS and report["num_examples"] == 13_575
    assert 7.9 < report["epsilon"] <= 8.0
    for key in (
        "delta",
        "accountant",
        "epsilon_rdp",
        "epsilon_pld",
        "epsilon_without_amplification",
        "noise_multiplier",
        "clip_norm",
        "sampling_probability",
        "expected_batch_size",
        "sampling",
        "adjacency",
        "versions",
        "tensorflow_privacy_statement",
    ):
        assert report[key] is not None
    assert report["counts"]["bad_records"] == {}
    assert verify(workdir).agrees
    assert "ε = 8" in (workdir / "privacy_report.html").read_text()
    metrics = json.loads((workdir / "metrics.json").read_text())
    assert metrics["caption_loss"]["captioner"]["captions"] == 1716
    assert 0 < metrics["caption_loss"]["public_unigram"]["per_token"] < 8.01  # ln 3000
    assert set(metrics["few_shot"]) == {"encoder", "random_encoder", "pixels"}
    assert json.loads((workdir / "config.json").read_text())["privacy"]["steps"] == STEPS
    for name in ("training_curve.png", "captions.png"):
        assert (workdir / "figures" / name).stat().st_size > 10_000
    assert list((workdir / "tensorboard").rglob("events.out.tfevents.*"))
    # A kill takes away at most the step that was under way; it stays counted.
    assert saved_steps(workdir) in (STEPS - 1, STEPS)


def test_the_saved_model_captions_picture_bytes_with_tensorflow_alone(finished, tmp_path):
    code = f"""
import sys
import tensorflow as tf
picture = tf.io.encode_png(tf.fill([40, 30, 3], tf.constant(200, tf.uint8)))
model = tf.saved_model.load({str(finished[0] / "saved_model")!r})
caption = model.signatures["serve"](image_bytes=tf.stack([picture]))["captions"]
features = model.signatures["features"](image_bytes=tf.stack([picture]))["features"]
assert caption.dtype == tf.string and caption.shape == (1,)
assert features.shape == (1, 16) and bool(tf.reduce_any(features != 0))
assert "tfdp" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_plan_may_clip_by_layer():
    config = quickstart.get_config().unlock()
    with config.ignore_type():
        config.privacy.clip_norm = {"encoder": 0.6, "decoder": 0.8}
    assert PrivacyPlan(**config.privacy.to_dict()).clip_norm == pytest.approx(1.0)


def test_the_saved_model_normalizes_pictures_as_training_did(tmp_path, run_in_fork):
    # In a process of its own: the program's flags are those of other programs too.
    given = run_in_fork(
        f"""
        import json
        from types import SimpleNamespace
        from configs import quickstart
        from launch import train_captioner as program
        from launch._workdir import Workdir
        from tfdp.privacy import Ledger, PrivacyPlan
        from tfdp.privacy.report import build_report

        config, given = quickstart.get_config(), {{}}
        config.data.normalization = "imagenet"
        for part in ("held_out_losses", "few_shot_accuracies", "draw_figures"):
            setattr(program.run_results, part, lambda *_, **settings: {{}})
        program.run_results.held_out_text = lambda _: ""
        program.run_setup.new_captioner = lambda *_: None
        program.export_captioner = lambda *_, **settings: given.update(settings)
        plan = PrivacyPlan(10, 5, 1, 1.0, noise_multiplier=1.0, delta=1e-5)
        report = build_report(plan, Ledger())
        model = SimpleNamespace(privacy_report=lambda **_: report, privacy=plan)
        train = SimpleNamespace(bad_records={{}}, truncated_captions=0)
        data = SimpleNamespace(train=train, test=(), tokenizer=None)
        program.write_results(model, config, data, Workdir({str(tmp_path)!r}))
        print(json.dumps(given))
        """
    )
    assert json.loads(given.splitlines()[-1]) == {"normalization": "imagenet"}


def test_the_same_command_again_says_that_it_is_finished_and_spends_nothing(finished):
    """It may ask for another evaluation, which spends nothing either."""
    workdir, _, _ = finished
    before = (workdir / "ledger.jsonl").read_bytes()
    report = json.loads((workdir / "privacy_report.json").read_text())
    code, out, err = outcome(workdir, "--config.evaluation.draws=2")
    assert code == 0, err
    probe = json.loads((workdir / "metrics.json").read_text())["few_shot"]["encoder"]["1_shot"]
    assert len(probe["accuracies"]) == 2
    assert f"All {STEPS} steps have been taken already" in err
    assert "(epsilon, delta) = (8, 1e-05)" in out
    assert steps(workdir) == STEPS
    assert (workdir / "ledger.jsonl").read_bytes() == before
    again = json.loads((workdir / "privacy_report.json").read_text())
    assert again["counts"] == report["counts"] and again["counts"]["examples_used"] > 200
    assert [name.split()[0] for name in again["public_data"]] == ["WordNet's"] * 2


def test_other_settings_in_the_same_workdir_are_rejected_by_name(finished):
    code, _, err = outcome(finished[0], "--config.privacy.clip_norm=0.5")
    assert code == 1
    assert "config.privacy.clip_norm: 1.0 there, 0.5 here" in err
    assert steps(finished[0]) == STEPS


def test_sigterm_ends_after_the_step_with_a_checkpoint(tmp_path):
    code, _, err = stopped(tmp_path, signal.SIGTERM, "--config.privacy.steps=200")
    assert code == 1
    assert "error: stopped by a signal; the same command goes on" in err
    made = steps(tmp_path)
    assert 3 <= made < 200
    assert list((tmp_path / "checkpoints").glob(f"ckpt-{made}.index"))
    assert not (tmp_path / "privacy_report.json").exists()


def test_two_devices_run_the_same_command_and_report_the_same(finished, tmp_path):
    """D11."""
    workdir = tmp_path / "mirrored"
    code, _, err = outcome(workdir, "--strategy=mirrored", devices=2)
    assert code == 0, err
    one = json.loads((finished[0] / "privacy_report.json").read_text())
    two = json.loads((workdir / "privacy_report.json").read_text())
    for key in ("epsilon", "steps", "sampling_probability", "expected_batch_size"):
        assert one[key] == two[key]
    # A run that was never stopped lacks nothing.
    assert saved_steps(workdir) == STEPS
    assert {path.name for path in workdir.iterdir()} == {
        path.name for path in finished[0].iterdir()
    }


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config.privacy.epsilon=0"], "epsilon"),
        (["--config.data.dataset=nothing"], "config.data.dataset='nothing'"),
        (["--config.data.dataset=image_text", "--config.data.path=/nowhere"], "/nowhere"),
        (["--config.data.vocabulary=/none.txt"], "/none.txt"),
        (["--config.data.normalization=mine"], "normalization must be one of"),
        (["--config.optimizer.name=rmsprop"], "rmsprop"),
        (["--config.training.microbatch_size=0"], "config.training.microbatch_size must be"),
        (["--config.evaluation.batch_size=0"], "config.evaluation.batch_size must be"),
        (["--config.evaluation.shots=(90,)"], "config.evaluation.shots=(1, 90) takes 90 examples"),
        (["--strategy=both"], "both"),
    ],
)
def test_a_mistake_is_one_clear_line_that_spends_and_claims_nothing(tmp_path, flags, message):
    code, _, err = outcome(tmp_path / "run", *flags)
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith(("error:", "FATAL"))]
    assert len(lines) == 1 and message in lines[0]
    assert "Traceback" not in err
    assert steps(tmp_path / "run") == 0
    assert not (tmp_path / "run" / "config.json").exists()
