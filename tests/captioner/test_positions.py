"""The fixed position tables."""

import numpy as np

from tests.captioner.fixture import load_io
from tfdp.captioner.layers import image_positions, text_positions


def test_tables_are_the_reference_s_to_the_bit():
    io = load_io()
    np.testing.assert_array_equal(image_positions(4, 32), io["sincos/pos_embed"][0])
    np.testing.assert_array_equal(image_positions(4, 32), io["sincos/decoder_pos_embed"][0])
    np.testing.assert_array_equal(text_positions(12, 32), io["sincos/text_decoder_pos_embed"][0])


def test_first_half_is_the_column_and_second_the_row():
    table = image_positions(3, 8)[1:].reshape(3, 3, 8)  # [row, column, channel]
    assert (table[:, :, :4] == table[:1, :, :4]).all()
    assert (table[:, :, 4:] == table[:, :1, 4:]).all()
    np.testing.assert_allclose(table[0, 2, :4], np.r_[np.sin([2, 0.02]), np.cos([2, 0.02])], 1e-6)


def test_class_token_has_no_position():
    assert not image_positions(3, 8)[0].any()
