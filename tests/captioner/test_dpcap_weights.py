"""Published checkpoints fill the captioner exactly, or leave it alone and say why."""

import numpy as np
import pytest

from tests.captioner.fixture import FIXTURES, WEIGHTS, fixture_config, variables_by_path
from tfdp.captioner import (
    Captioner,
    CaptionerConfig,
    CheckpointError,
    dpcap_sources,
    load_dpcap_weights,
    read_tensors,
    set_dpcap_weights,
)
from tfdp.captioner.dpcap_weights import UNUSED, is_mask_buffer


@pytest.fixture(scope="module")
def tensors():
    return read_tensors(WEIGHTS)


@pytest.mark.parametrize("name", ["dpcap_nano.pth", "dpcap_nano_namespace.pth"])
def test_torch_and_numpy_files_fill_alike(name):
    ours, theirs = Captioner(fixture_config()), Captioner(fixture_config())
    load_dpcap_weights(ours, FIXTURES / name)
    load_dpcap_weights(theirs, WEIGHTS)
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_weight_is_set_from_exactly_one_tensor():
    sources = dpcap_sources(fixture_config())
    paths = sorted(source.path for source in sources.values())
    assert paths == sorted(variables_by_path(Captioner(fixture_config())))


@pytest.mark.parametrize("size", ["nano", "tiny", "small", "base", "large"])
def test_names_and_shapes_of_the_published_sizes(size):
    sources = dpcap_sources(CaptionerConfig.dpcap(size, max_length=77))
    listed = {"trainable": {}, "frozen": {}, "buffer": {}}
    for line in (FIXTURES / f"keys_{size}.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, shape, _, kind = line.split("\t")
            listed[kind][name] = tuple(int(n) for n in shape.strip("()").split(",") if n.strip())
    assert {n: s.shape for n, s in sources.items() if s.trained} == listed["trainable"]
    frozen = {name: shape for name, shape in listed["frozen"].items() if name not in UNUSED}
    assert {n: s.shape for n, s in sources.items() if not s.trained} == frozen
    assert len(listed["frozen"]) == len(frozen) + len(UNUSED)
    assert listed["buffer"] and all(map(is_mask_buffer, listed["buffer"]))


def test_mask_buffers_and_unused_tensors_may_be_absent(tensors):
    kept = {n: t for n, t in tensors.items() if n not in UNUSED and not is_mask_buffer(n)}
    assert len(tensors) - len(kept) == 6
    set_dpcap_weights(Captioner(fixture_config()), kept)


def test_prefixes_of_wrapped_models_are_dropped(tensors, tmp_path):
    for prefix in ("module.", "_module."):
        np.savez(tmp_path / "w.npz", **{prefix + name: t for name, t in tensors.items()})
        assert read_tensors(tmp_path / "w.npz").keys() == tensors.keys()


def test_a_checkpoint_that_does_not_fit_is_described_and_changes_nothing(tensors):
    model = Captioner(fixture_config())
    before = model.get_weights()
    wrong = dict(tensors)
    del wrong["norm.weight"]
    wrong["blocks.0.attn.qkv.bias"] = np.zeros(96, np.float32)
    wrong["cls_token"] = np.zeros((1, 1, 16), np.float32)
    with pytest.raises(CheckpointError) as caught:
        set_dpcap_weights(model, wrong)
    message = str(caught.value)
    assert "1 missing: norm.weight" in message
    assert "1 unexpected: blocks.0.attn.qkv.bias" in message
    assert "1 of the wrong shape: cls_token (1, 1, 16), expected (1, 1, 32)" in message
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_long_lists_of_names_are_cut(tensors):
    with pytest.raises(CheckpointError, match=r"59 missing|66 missing.*, \.\.\."):
        set_dpcap_weights(Captioner(fixture_config()), {})


def test_another_text_length_is_named(tensors):
    settings = fixture_config().get_config() | {"max_length": 9}
    with pytest.raises(CheckpointError, match=r"text_decoder_pos_embed \(1, 12, 32\), expected"):
        set_dpcap_weights(Captioner(CaptionerConfig(**settings)), tensors)


def test_files_that_are_no_checkpoints(tmp_path):
    (tmp_path / "x.npz").write_bytes(WEIGHTS.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="x.npz: not a complete .npz file"):
        read_tensors(tmp_path / "x.npz")
    np.savez(tmp_path / "o.npz", a=np.array([{}], object))
    with pytest.raises(CheckpointError, match="o.npz: not a complete .npz file"):
        read_tensors(tmp_path / "o.npz")
    np.savez(tmp_path / "e.npz")
    with pytest.raises(CheckpointError, match="holds no named tensors"):
        read_tensors(tmp_path / "e.npz")
    with pytest.raises(CheckpointError, match="expected a .pth, .pt or .npz file"):
        read_tensors(tmp_path / "weights.h5")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "absent.npz")


def test_a_torch_file_of_something_else(tmp_path):
    import pickle

    from tests.files.torch_writer import TorchWriter

    path = TorchWriter.write_zip(tmp_path / "x.pth", pickle.dumps({"model": {"epoch": 3}}))
    with pytest.raises(CheckpointError, match="'epoch' is not a named tensor"):
        read_tensors(path)
