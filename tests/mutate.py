"""Removes, one at a time, the lines that uphold the guarantee, and shows that tests fail (A31).

    python -m tests.mutate [NAME ...]

Every mutation is made in a copy of the tree, and the tests that should notice run there. Ends
with exit code 1 if one of them passes.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tqdm

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A fault, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: str


INVARIANTS = "tests/training/test_invariants.py"
NOISE = "tests/training/test_noise.py"
MUTATIONS = (
    Mutation(
        "no_noise",
        "tfdp/privacy/noise.py",
        "total + stddev * noise",
        "total + 0.0 * noise",
        f"{NOISE}::test_deviation_is_noise_multiplier_times_clip_over_expected_batch",
    ),
    Mutation(
        "one_key_for_all_weights",
        "tfdp/privacy/noise.py",
        'f"{step}/{i}"',
        'f"{step}"',
        f"{NOISE}::test_noise_is_independent_across_weights_and_steps",
    ),
    Mutation(
        "one_key_for_all_updates",
        "tfdp/privacy/noise.py",
        'f"{step}/{i}"',
        'f"{i}"',
        f"{NOISE}::test_noise_is_independent_across_weights_and_steps",
    ),
    Mutation(
        "no_clip",
        "tfdp/clipping/factors.py",
        "return clip_norm / tf.maximum(norms, clip_norm)",
        "return tf.ones_like(norms)",
        f"{INVARIANTS}::test_weights_move_by_at_most_the_clip_norm_per_step",
    ),
    Mutation(
        "no_mask",
        "tfdp/clipping/clipped_gradient.py",
        "used = batch.mask & tf.math.is_finite(self._by_example(norms))",
        "used = tf.math.is_finite(self._by_example(norms))",
        INVARIANTS,
    ),
    Mutation(
        "unreadable_records_as_zeros",
        "tfdp/training/microbatches.py",
        "mask & valid",
        "mask",
        f"{INVARIANTS}::test_examples_that_cannot_be_read_contribute_nothing",
    ),
    Mutation(
        "one_histogram_for_all",
        "tfdp/clipping/patched_layers.py",
        'if getattr(type(layer), "_equalize_channel", None) is _BY_KERAS:',
        "if False:",
        "tests/clipping/test_image_layers.py -k replacing",
    ),
    Mutation(
        "a_batch_taken_for_one_image",
        "tfdp/clipping/patched_layers.py",
        "images.shape.rank == 3",
        "images.shape.rank == 2",
        "tests/clipping/test_image_layers.py -k takes",
    ),
    Mutation(
        "model_check_on_one_kind_of_inputs",
        "tfdp/clipping/mixing.py",
        "if seen is not None and not unknown:",
        "if seen is not None:",
        "tests/clipping/test_model_check.py -k some_inputs",
    ),
    Mutation(
        "synthetic_ids_from_zero_and_one",
        "tfdp/clipping/synthetic_inputs.py",
        "found[:1] **= 4",
        "found[:1] **= 1",
        "tests/clipping/test_model_check.py -k averaged",
    ),
    Mutation(
        "one_dropout_mask_for_all",
        "tfdp/clipping/mapped.py",
        "fold(fold(recorder.batch.seed, index), key)",
        "fold(recorder.batch.seed, key)",
        "tests/clipping/test_mapped.py -k drop",
    ),
    Mutation(
        "overflowed_microbatch_left_out",
        "tfdp/training/step.py",
        "        totals = self._completed(totals, last)\n        before_release()",
        "        before_release()",
        f"{INVARIANTS} -k non_finite",
    ),
    Mutation(
        "overflowed_replicas_neighbours_left_out",
        "tfdp/training/step.py",
        "all(self._strategy",
        "any(self._strategy",
        "tests/training/test_strategies.py -k weights_equal",
    ),
    Mutation(
        "cancelled_norms_trusted",
        "tfdp/clipping/terms/ghost_norm.py",
        "+ errors * _epsilon(squares) * scale",
        "+ 0.0 * scale",
        "tests/clipping/test_cancellation.py",
    ),
    Mutation(
        "few_cancelled_norms_trusted",
        "tfdp/clipping/terms/ghost_norm.py",
        "return raised_product(tf.cast(squares, inputs.dtype), tf.cast(scale, inputs.dtype))",
        "return tf.cast(squares, inputs.dtype)",
        "tests/clipping/test_cancellation.py -k positions",
    ),
    Mutation(
        "writes_past_the_noise",
        "tfdp/clipping/survey.py",
        "    reject_writes(traced.graph, forward.model)\n",
        "",
        "tests/clipping/test_model_check.py -k writes",
    ),
    Mutation(
        "removals_only",
        "tfdp/privacy/accounting/pld.py",
        "for neighbor in (AdjacencyType.REMOVE, AdjacencyType.ADD)",
        "for neighbor in (AdjacencyType.REMOVE,)",
        "tests/privacy/test_calibration.py -k added_example",
    ),
    Mutation(
        "odd_values_cast",
        "tfdp/data/example_spec.py",
        "return cast if spec.dtype.is_floating or np.all(cast == value) else None",
        "return cast",
        "tests/data/test_indexable_source.py",
    ),
    Mutation(
        "weights_without_their_ledger",
        "tfdp/training/validation.py",
        "    if made > known:",
        "    if False:",
        "tests/training/test_spending.py -k came_without_their_ledger",
    ),
    Mutation(
        "seeded_run_set_back",
        "tfdp/training/validation.py",
        "    if compiled.seed is not None and at < made:",
        "    if False:",
        "tests/training/test_spending.py -k set_back",
    ),
    Mutation(
        "runs_share_noise",
        "tfdp/transfer/release_budget.py",
        "NoiseKey.from_seed(seed).child(_words(purpose))",
        'NoiseKey.from_seed(seed).child("")',
        "tests/transfer/test_seeds.py",
    ),
    Mutation(
        "held_out_by_place",
        "tfdp/transfer/studies/held_out.py",
        '    if adjacency == "replace_one":\n        return _places(len(data), share), len(data)\n',
        "    return _places(len(data), share), len(data)\n",
        "tests/transfer/test_held_out.py",
    ),
    Mutation(
        "losses_see_the_batch",
        "tfdp/clipping/forward.py",
        'if getattr(self.loss, "by_user", True):',
        "if False:",
        "tests/clipping/test_losses.py::test_a_loss_that_users_write_sees_one_example_at_a_time",
    ),
    Mutation(
        "coarse_products",
        "tfdp/clipping/clipped_gradient.py",
        "        require_float32_products()\n",
        "",
        "tests/clipping/test_products.py",
    ),
    Mutation(
        "checkpoints_trained_past",
        "tfdp/training/checkpoints.py",
        "if self._waiting:",
        "if False:",
        "tests/training/test_resume.py::test_checkpoints_of_an_earlier_run_are_not_trained_past",
    ),
    Mutation(
        "realised_divisor",
        "tfdp/training/step.py",
        "            self.expected_batch_size,\n            noise,",
        "            tf.maximum(totals.examples, 1.0),\n            noise,",
        f"{INVARIANTS}::test_the_divisor_is_the_expected_batch_whatever_was_drawn",
    ),
    Mutation(
        "no_ledger_entry",
        "tfdp/training/step.py",
        "        before_release()\n",
        "",
        f"{INVARIANTS}::test_a_batch_larger_than_the_microbatch_is_split_and_nothing_is_dropped",
    ),
    Mutation(
        "ledger_not_flushed",
        "tfdp/files/whole.py",
        "os.fsync(",
        "(lambda _: None)(",
        "tests/privacy/test_ledger.py",
    ),
    Mutation(
        "count_not_flushed",
        "tfdp/privacy/ledger_file.py",
        "os.fdatasync(",
        "(lambda _: None)(",
        "tests/privacy/test_ledger.py",
    ),
    Mutation(
        "line_end_before_its_line",
        "tfdp/privacy/ledger_file.py",
        "            _pwrite(descriptor, tail.last[:-1], before.used)\n"
        "            os.fdatasync(descriptor)\n",
        "            _pwrite(descriptor, tail.last[:-1], before.used)\n",
        "tests/privacy/test_ledger.py",
    ),
    Mutation(
        "entered_after_the_release",
        "tfdp/training/step.py",
        "        before_release()\n        released = self._release(totals, noise)\n",
        "        released = self._release(totals, noise)\n        before_release()\n",
        "tests/training/test_resume.py -k cannot_be_entered",
    ),
    Mutation(
        "resumed_under_other_settings",
        "tfdp/training/checkpoints.py",
        'if values["settings"] == compiled.fingerprint:',
        "if True:",
        "tests/training/test_resume.py -k other_settings",
    ),
    Mutation(
        "first_weights_not_saved",
        "tfdp/training/checkpoints.py",
        "        if self._latest is None:",
        "        if False:",
        "tests/training/test_resume.py -k first_weights",
    ),
    Mutation(
        "half_precision_norms",
        "tfdp/clipping/rules/registry.py",
        "return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)",
        "return tensor",
        "tests/clipping/test_precision.py",
    ),
    Mutation(
        "half_precision_sums",
        "tfdp/clipping/factors.py",
        "tf.float64 if tf.as_dtype(w.dtype) == tf.float64 else tf.float32",
        "tf.bfloat16",
        f"{INVARIANTS} -k microbatches_and_padding",
    ),
    Mutation(
        "squares_that_count_as_zero",
        "tfdp/clipping/terms/ghost_norm.py",
        "return tf.nn.relu(hidden - _NEGLIGIBLE)",
        "return tf.zeros_like(hidden)",
        "tests/clipping/test_bound.py",
    ),
    Mutation(
        "keys_of_nothing_secret",
        "tfdp/privacy/noise.py",
        "key=self.secret",
        "key=bytes(16)",
        f"{NOISE}::test_runs_without_a_seed_never_repeat_noise",
    ),
    Mutation(
        "no_noise_on_the_grid",
        "tfdp/privacy/noise.py",
        "tf.cast(steps, tf.int64) + integers",
        "tf.cast(steps, tf.int64)",
        "tests/training/test_secure_noise.py -k grid",
    ),
    Mutation(
        "sums_not_on_the_grid",
        "tfdp/privacy/noise.py",
        "tf.cast(noised, total.dtype) * step / expected",
        "(total + tf.cast(integers, total.dtype) * step) / expected",
        "tests/training/test_secure_noise.py -k grid",
    ),
    Mutation(
        "budget_not_a_wall",
        "tfdp/training/run.py",
        "if epochs * per_epoch > left:",
        "if False:",
        f"{INVARIANTS} -k beyond_the_plan",
    ),
    Mutation(
        "no_sum_over_replicas",
        "tfdp/training/step.py",
        "        totals = _over_replicas(totals)\n",
        "",
        "tests/training/test_strategies.py",
    ),
    Mutation(
        "noise_summed_over_replicas",
        "tfdp/optimizers/private.py",
        "        return list(grads_and_vars)",
        "        return super()._all_reduce_sum_gradients(grads_and_vars)",
        "tests/training/test_strategies.py -k same_scale",
    ),
    Mutation(
        "same_noise_every_run",
        "tfdp/privacy/noise.py",
        "cls(secrets.token_bytes(16))",
        "cls(bytes(16))",
        f"{NOISE}::test_runs_without_a_seed_never_repeat_noise",
    ),
    Mutation(
        "raw_gradients_accepted",
        "tfdp/optimizers/private.py",
        "if not isinstance(grads, NoisyGradients):",
        "if False:",
        "tests/optimizers -k raw_gradients",
    ),
    Mutation(
        "other_sampling_executed",
        "tfdp/training/microbatches.py",
        'if plan.sampling not in ("poisson", "full_batch"):',
        "if False:",
        "tests/training/test_resume.py -k does_not_execute",
    ),
    Mutation(
        "first_step_of_a_head_not_clipped",
        "tfdp/transfer/clipped_sums.py",
        "self._factors * _clipping(norms, clip_norm))",
        "self._factors)",
        "tests/transfer/test_clipped_sums.py -k closed_form",
    ),
    Mutation(
        "first_step_of_a_head_forgets_its_label",
        "tfdp/transfer/clipped_sums.py",
        "(1 - probabilities) ** 2)",
        "probabilities**2)",
        "tests/transfer/test_clipped_sums.py -k closed_form",
    ),
    Mutation(
        "convolution_forgets_a_place",
        "tfdp/clipping/terms/convolution_terms.py",
        "for s in own])",
        "for s in own[:1]])",
        "tests/clipping/test_convolutions.py -k every_method",
    ),
)


def noticed(mutation: Mutation) -> bool:
    """Whether the tests fail on a tree with the fault."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=ignored)
        path = tree / mutation.file
        text = path.read_text(encoding="utf-8")
        if mutation.old not in text:
            sys.exit(f"{mutation.name}: {mutation.file} has no {mutation.old!r}; adapt the list.")
        path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", *mutation.tests.split()]
        env = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{mutation.name}: pytest ended with {done.returncode}\n{done.stdout}")
        return done.returncode == 1


def main(names: list[str]) -> None:
    unknown = set(names) - {m.name for m in MUTATIONS}
    if unknown:
        known = ", ".join(m.name for m in MUTATIONS)
        sys.exit(f"no mutation named {', '.join(sorted(unknown))}: expected of {known}")
    chosen = [m for m in MUTATIONS if not names or m.name in names]
    missed = []
    for mutation in tqdm.tqdm(chosen, unit="mutation"):
        if not noticed(mutation):
            missed.append(mutation.name)
        tqdm.tqdm.write(f"{mutation.name}: {'MISSED' if missed[-1:] == [mutation.name] else 'ok'}")
    if missed:
        sys.exit(f"not noticed: {', '.join(missed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
