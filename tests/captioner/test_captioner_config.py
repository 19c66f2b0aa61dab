"""Settings that cannot work are rejected by name."""

import keras
import pytest

from tests.captioner.tiny import tiny_config
from tfdp.captioner import DPCAP_SIZES, CaptionerConfig


def test_round_trip_through_keras_serialisation():
    config = tiny_config(decoder_norm="pre")
    data = keras.saving.serialize_keras_object(config)
    assert keras.saving.deserialize_keras_object(data) == config


def test_published_sizes_take_changes():
    assert DPCAP_SIZES == ("nano", "tiny", "small", "base", "large")
    large = CaptionerConfig.dpcap("large", max_length=77)
    assert (large.encoder_width, large.encoder_depth, large.encoder_heads) == (1024, 24, 16)
    assert (large.decoder_width, large.decoder_depth, large.decoder_heads) == (768, 6, 12)
    assert (large.max_length, large.num_image_tokens) == (77, 197)


def test_unknown_size_lists_the_known_ones():
    with pytest.raises(ValueError, match="nano, tiny, small, base, large, got 'huge'"):
        CaptionerConfig.dpcap("huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_size": 15}, "image_size 15 is not a multiple of patch_size 8"),
        ({"encoder_width": 18}, "encoder_width must be a multiple of 4"),
        ({"encoder_width": 20, "encoder_heads": 3}, "encoder_width 20 .* encoder_heads 3"),
        ({"decoder_heads": 5}, "decoder_width 12 is not a multiple of decoder_heads 5"),
        ({"decoder_depth": 0}, "decoder_depth must be a whole number of at least 1, got 0"),
        ({"max_length": 1}, "max_length must hold a start and an end id"),
        ({"decoder_norm": "none"}, "decoder_norm must be 'post' or 'pre'"),
        ({"end_id": 11}, "end_id 11 is outside the vocabulary of 11"),
        ({"end_id": 1}, "start_id and end_id are both 1"),
    ],
)
def test_impossible_settings(change, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**change)


@pytest.mark.parametrize("value", [2.5, True, "2", None])
def test_numbers_must_be_whole(value):
    with pytest.raises(TypeError, match="mlp_ratio must be a whole number"):
        tiny_config(mlp_ratio=value)
