"""Prints what a private run will cost, before it runs.

    python -m launch.plan --config=configs/quickstart.py --config.privacy.batch_size=4096

Sigma, epsilon by accountant against steps, expected coverage, the model's size, and estimates
of memory and work. Settings that are impossible are rejected in one line.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import ml_collections
from ml_collections import config_flags

from launch._cli import check_config, run_program
from tfdp import checks
from tfdp.captioner import (
    CaptionerConfig,
    CaptionTokenizer,
    count_parameters,
    estimate_activation_bytes_per_example,
    estimate_flops_per_example,
    icons_tokenizer,
)
from tfdp.privacy import PrivacyPlan, Segment
from tfdp.privacy.accounting import epsilon_by_accountant, epsilon_without_amplification
from tfdp.privacy.interpretation import expected_coverage

_CONFIG = config_flags.DEFINE_config_file("config", None, "The run: configs/FILE.py[:argument].")

#: Shares of the planned steps that get a row in the table.
_SHARES = (0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0)
#: float32 values kept per trained weight: the weight, the clipped sum, two optimizer moments.
_VALUES_PER_WEIGHT = 4


def main(_: list[str]) -> None:
    config = _CONFIG.value
    check_config(config, "privacy", "model", "data", "training")
    checks.positive_int("config.training.microbatch_size", config.training.microbatch_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = PrivacyPlan(**config.privacy.to_dict())
        model = _model(config)
    for line in describe(plan, model, config.training.microbatch_size):
        print(line)
    for message in [*(str(warning.message) for warning in caught), *_warnings(plan)]:
        print(f"warning: {message}")


def describe(plan: PrivacyPlan, model: CaptionerConfig, microbatch_size: int) -> Iterator[str]:
    """The lines of the plan for people."""
    yield from _table("Private steps", _privacy_rows(plan))
    yield from _epsilon_table(plan)
    yield from _table("Model and machine (estimates)", _machine_rows(plan, model, microbatch_size))


def _privacy_rows(plan: PrivacyPlan) -> Iterator[tuple[str, str]]:
    q = plan.sampling_probability
    segment = Segment(plan.settings, plan.steps)
    coverage = expected_coverage([segment])
    yield "noise multiplier sigma", f"{plan.noise_multiplier:.6g}"
    yield (
        "noise on the clipped sum",
        f"standard deviation {plan.settings.gradient_noise_multiplier * plan.clip_norm:.6g}, "
        f"clip norm {plan.clip_norm:g}{_rest_of_noise(plan)}",
    )
    yield (
        "sampling",
        f"{plan.sampling}, q = {plan.batch_size:,}/{plan.num_examples:,} = {q:.4g}",
    )
    yield (
        "expected batch size",
        f"{plan.batch_size:,} examples; every sum is divided by this number",
    )
    yield "steps", f"{plan.steps:,}, {plan.steps * q:.4g} expected epochs"
    if coverage is not None:
        yield "expected coverage", f"{coverage:.2%} of the examples are used at least once"
    if plan.target_epsilon is not None:
        yield "target epsilon", f"{plan.target_epsilon:g}"
    if plan.delta is not None:
        guarantee = plan.guarantee()
        yield (
            "guarantee",
            f"epsilon {guarantee.epsilon:.2f} at delta {plan.delta:.4g} "
            f"by {guarantee.accountant_title}, {plan.adjacency.replace('_', ' ')}",
        )
        if guarantee.note:
            yield "note", guarantee.note
        bare = epsilon_without_amplification([segment], plan.delta)
        yield "without amplification", f"epsilon {bare:.2f}"


def _rest_of_noise(plan: PrivacyPlan) -> str:
    """What sigma pays for besides the sum, where the clip norm follows a quantile."""
    noise = plan.settings.count_noise
    return "" if noise is None else f" at the start; and {noise:.6g} on the count of those below it"


def _epsilon_table(plan: PrivacyPlan) -> Iterator[str]:
    if plan.delta is None:
        return
    yield ""
    yield f"Epsilon at delta {plan.delta:.4g}, against steps"
    yield f"  {'steps':>12} {'RDP':>10} {'PLD':>10}"
    for steps in sorted({max(1, round(share * plan.steps)) for share in _SHARES}):
        answers = epsilon_by_accountant([Segment(plan.settings, steps)], plan.delta)
        # Without subsampling the closed form is what the loss distribution approximates.
        pld = answers["pld"] if answers["gaussian"] is None else answers["gaussian"]
        yield f"  {steps:>12,} {_figure(answers['rdp']):>10} {_figure(pld):>10}"


def _figure(epsilon: float | None) -> str:
    return "-" if epsilon is None else f"{epsilon:.2f}"


def _machine_rows(
    plan: PrivacyPlan, model: CaptionerConfig, microbatch_size: int
) -> Iterator[tuple[str, str]]:
    weights = count_parameters(model)
    activations = microbatch_size * estimate_activation_bytes_per_example(model)
    flops = estimate_flops_per_example(model)
    yield "trainable parameters", f"{weights:,}"
    yield "vocabulary", f"{model.vocab_size:,} ids"
    yield (
        "bytes per microbatch",
        f"{_bytes(activations)} of activations for {microbatch_size:,} examples, float32: inputs "
        "and outputs of the trained layers, attention weights",
    )
    yield (
        "bytes beside it",
        f"{_bytes(4 * _VALUES_PER_WEIGHT * weights)}: weights, clipped sum, two moments, float32",
    )
    yield (
        "FLOPs per step",
        f"{flops * plan.batch_size:.3g}: {flops:.3g} per example, forward and backward, times "
        "the expected batch",
    )
    yield "FLOPs in all", f"{flops * plan.batch_size * plan.steps:.3g}"


def _table(title: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield ""
    yield title
    for name, value in rows:
        yield f"  {name:<26}{value}"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def _warnings(plan: PrivacyPlan) -> Iterator[str]:
    if plan.noise_multiplier == 0:
        yield "noise_multiplier is 0: epsilon is infinite, there is no guarantee."
    if plan.delta is None:
        yield "there is no delta, so no epsilon: give privacy.delta, commonly below 1/N."
    elif plan.noise_multiplier and plan.epsilon > 10:
        yield f"epsilon {plan.epsilon:.3g} is weak: such a guarantee rules few attacks out."


def _model(config: ml_collections.ConfigDict) -> CaptionerConfig:
    """The captioner of the config; without a vocabulary's size, with the one its run will use."""
    settings = config.model.to_dict()
    if "vocab_size" not in settings:
        path = config.data.get("vocabulary")
        tokenizer = CaptionTokenizer(path) if path else icons_tokenizer()
        settings["vocab_size"] = tokenizer.vocabulary_size
        settings["start_id"], settings["end_id"] = tokenizer.start_id, tokenizer.end_id
    return CaptionerConfig(**settings)


if __name__ == "__main__":
    run_program(main)
