"""Captions beside other pictures than their own: what a captioner reads off its pictures."""

import keras
import numpy as np
import pytest
from keras import ops

from tfdp.captioner import caption_loss, times_likelier
from tfdp.data import ArraySource


class TableOfScores:
    """Answers with mean nats per token from a table, picture by caption."""

    def __init__(self, nats):
        self._nats = np.array(nats)

    def score_captions(self, images, token_ids):
        assert len(images) == len(self._nats) and len(token_ids) == self._nats.shape[1]
        return self._nats


def test_likelihood_beside_its_own_picture_is_over_the_mean_of_the_others():
    tokens = [[2, 5, 3, 0], [2, 5, 7, 3], [2, 3, 0, 0]]  # 2, 3 and 1 to be guessed
    nats = [[1.0, 2.0, 4.0], [1.5, 2.0, 4.0], [2.5, 2.0, 5.0]]
    found = times_likelier(TableOfScores(nats), np.zeros((3, 4, 4, 3)), tokens)
    np.testing.assert_allclose(found, np.exp([2 * (2.0 - 1.0), 0.0, 1 * (4.0 - 5.0)]))


@pytest.mark.parametrize("pictures, captions", [(1, 1), (2, 3), (0, 0)])
def test_each_picture_needs_a_caption_and_another_picture(pictures, captions):
    with pytest.raises(ValueError, match=f"got {pictures} and {captions}"):
        times_likelier(TableOfScores([]), np.zeros((pictures, 4, 4, 3)), [[2, 3]] * captions)


class NamesThePicture(keras.Model):
    """Is sure by 3 nats that every token is the picture's only number."""

    def call(self, inputs):
        number = ops.cast(inputs["image"][:, 0], "int32")
        return ops.repeat(3.0 * ops.one_hot(number, 5)[:, None], 2, axis=1)


def test_other_pictures_cost_what_was_read_off_their_own():
    numbers = np.array([1, 2, 3, 4])
    source = ArraySource({"image": numbers[:, None].astype(np.float32)}, np.stack([numbers] * 2, 1))
    own, other = (
        caption_loss(NamesThePicture(), source, other_pictures=swapped).per_token
        for swapped in (False, True)
    )
    assert own == pytest.approx(np.log(np.exp(3) + 4) - 3, abs=1e-6)
    assert other == pytest.approx(own + 3, abs=1e-6)
