"""The names that users write do not vanish (G13)."""

import importlib

import pytest

import tfdp

NAMES = {
    "tfdp": "DPModel PrivacyPlan choose_strategy make_private",
    "tfdp.clipping": "ClippedGradient Batch clipped_gradient_sum "
    "per_example_norms per_example_loss register_rule UnsupportedLayerError ScalarLossError",
    "tfdp.captioner": "Captioner CaptionerConfig CaptionTokenizer ImageTextSource load_icons "
    "load_dpcap_weights caption_loss unigram_loss times_likelier export_captioner",
    "tfdp.data": "ArraySource IndexableSource ExampleSource as_source",
    "tfdp.evaluation": "extract_features few_shot_probe",
    "tfdp.export": "export_with_report read_report",
    "tfdp.optimizers": "DPSGD DPAdam DPAdamW DPLAMB RawGradientsError warmup_cosine",
    "tfdp.privacy": "PrivacyPlan Ledger PrivacyReport Segment StepSettings PUBLIC compose "
    "epsilon noise_for_epsilon batch_size_for_epsilon steps_for_epsilon verify privatize "
    "AutomaticClipping PerLayerClipping QuantileClipping",
    "tfdp.privacy.accounting": "tensorflow_privacy_statement",
    "tfdp.privacy.ledger": "Ledger LedgerBusyError LedgerError",
    "tfdp.privacy.noise": "NoiseKey NoisyGradients privatize",
    "tfdp.privacy.report": "PrivacyReport build_report",
    "tfdp.privacy.solve": "solve_plan",
    "tfdp.privacy.verification": "Verification verify",
    "tfdp.sampling": "PoissonSampler FullBatchSampler FixedSizeSampler UserExamples "
    "split_into_microbatches",
    "tfdp.training": "CheckpointEvery DPModel ProgressBar StopOnTerm TrainingLog is_first_worker "
    "make_private",
    "tfdp.transfer": "LastLayer FullBatch OneStep LeastSquares Newton Head",
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names_are_there(module):
    imported = importlib.import_module(module)
    names = NAMES[module].split()
    assert [name for name in names if not hasattr(imported, name)] == []
    public = getattr(imported, "__all__", names)
    assert sorted(set(names) - set(public)) == []


@pytest.mark.parametrize("room", ["audit", "captioner", "evaluation", "export", "transfer"])
def test_the_other_rooms_are_attributes_too(room):
    assert getattr(tfdp, room) is importlib.import_module(f"tfdp.{room}")
    assert room in dir(tfdp) and room in tfdp.__all__


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="models"):
        tfdp.models  # noqa: B018


def test_importing_tfdp_loads_no_package_that_only_some_users_need(run_in_subprocess):
    # Keras itself loads matplotlib, scikit-learn and Pillow where they are installed.
    printed = run_in_subprocess(
        """
        import sys
        import keras
        by_keras = set(sys.modules)
        import tfdp
        added = set(sys.modules) - by_keras
        slow = "keras_nlp keras_hub keras_cv tensorflow_datasets matplotlib sklearn PIL tensorboard"
        print([name for name in slow.split() if name in added])
        print(tfdp.captioner.Captioner.__name__, "keras_nlp" in sys.modules)
        """
    )
    assert printed.splitlines() == ["[]", "Captioner True"]


def test_the_rooms_loaded_on_use_are_not_loaded_before(run_in_subprocess):
    printed = run_in_subprocess(
        """
        import sys
        import tfdp
        rooms = "audit captioner evaluation export transfer".split()
        print([room for room in rooms if f"tfdp.{room}" in sys.modules])
        """
    )
    assert printed.strip() == "[]"
