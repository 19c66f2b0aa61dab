"""G13: the names that users write do not vanish."""

import importlib

import pytest

NAMES = {
    "tfdp": "DPModel PrivacyPlan choose_strategy make_private",
    "tfdp.clipping": "ClippedGradient Flat PerLayer Automatic clipped_gradient_sum "
    "per_example_norms per_example_loss register_rule UnsupportedLayerError ScalarLossError",
    "tfdp.data": "ArraySource IndexableSource ImageTextSource ExampleSource as_source load_icons",
    "tfdp.evaluation": "caption_loss extract_features few_shot_probe unigram_loss",
    "tfdp.export": "export_captioner export_with_report read_report",
    "tfdp.models": "Captioner CaptionerConfig load_dpcap_weights",
    "tfdp.optimizers": "DPSGD DPAdam DPAdamW DPLAMB RawGradientsError warmup_cosine",
    "tfdp.privacy": "PrivacyPlan Ledger PrivacyReport Segment StepSettings Verification "
    "epsilon noise_for_epsilon batch_size_for_epsilon steps_for_epsilon solve_plan "
    "tensorflow_privacy_statement build_report verify LedgerBusyError LedgerError",
    "tfdp.privacy.noise": "NoiseKey NoisyGradients privatize",
    "tfdp.sampling": "PoissonSampler FullBatchSampler FixedSizeSampler UserExamples "
    "split_into_microbatches",
    "tfdp.training": "CheckpointEvery ProgressBar StopOnTerm TrainingLog is_first_worker",
    "tfdp.transfer": "LastLayer FullBatch OneStep LeastSquares Newton Head",
}


@pytest.mark.parametrize("module", NAMES)
def test_g13_public_names_are_there(module):
    imported = importlib.import_module(module)
    names = NAMES[module].split()
    assert [name for name in names if not hasattr(imported, name)] == []
    public = getattr(imported, "__all__", names)
    assert sorted(set(names) - set(public)) == []
