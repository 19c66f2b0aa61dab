"""Who is held out: a record's part follows from the record, not from who else is there."""

import numpy as np
import pytest

from tests.transfer.tables import clusters
from tfdp.transfer import as_table
from tfdp.transfer.features import ArrayPictures
from tfdp.transfer.features.picture_sets import FolderPictures
from tfdp.transfer.fine_tuning import Pictures
from tfdp.transfer.last_layer import check_count
from tfdp.transfer.studies.held_out import held_out, public_size, split

X, Y = clusters(2000, 6, 3, seed=1)


def _pictures(pixels):
    names = ["a", "b"]
    return Pictures(ArrayPictures("p", "train", names, pixels, np.arange(len(pixels)) % 2), 4)


@pytest.mark.parametrize("gone", [0, 1234, 1999])
def test_no_example_changes_parts_when_an_example_goes(gone):
    chosen = held_out(as_table(X, Y, 3), 0.1)
    left = held_out(as_table(np.delete(X, gone, 0), np.delete(Y, gone), 3), 0.1)
    np.testing.assert_array_equal(left, np.delete(chosen, gone))
    assert chosen.mean() == pytest.approx(0.1, abs=0.04)  # 6 standard deviations


def test_an_example_keeps_its_part_in_any_order_storage_and_company():
    order = np.random.default_rng(0).permutation(len(X))
    half = X.astype(np.float16)
    chosen = held_out(as_table(half, Y, 3), 0.3)
    np.testing.assert_array_equal(held_out(as_table(half[order], Y, 3), 0.3), chosen[order])
    stored = as_table(half.astype(np.float32), (Y + 1) % 3, 3)
    np.testing.assert_array_equal(held_out(stored, 0.3), chosen)


def test_pictures_go_by_their_pixels_or_the_names_of_their_files(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 4, 4, 3), np.uint8)
    chosen = held_out(_pictures(pixels), 0.2)
    np.testing.assert_array_equal(held_out(_pictures(pixels[1:]), 0.2), chosen[1:])
    assert 20 < chosen.sum() < 110
    for number in range(60):
        file = tmp_path / "train" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"never read")
    before = held_out(Pictures(FolderPictures(tmp_path, "train"), 4), 0.5)
    (tmp_path / "train" / "a" / "0.png").unlink()
    np.testing.assert_array_equal(
        held_out(Pictures(FolderPictures(tmp_path, "train"), 4), 0.5), before[1:]
    )


def test_where_neighbors_replace_an_example_its_place_decides():
    """An example that took its part along would change both parts."""
    rows = as_table(X, Y, 3)
    other = X.copy()
    other[7] += 1
    places = held_out(rows, 0.1, "replace_one")
    np.testing.assert_array_equal(held_out(as_table(other, Y, 3), 0.1, "replace_one"), places)
    assert public_size(2000, 0.1, "replace_one") == (~places).sum()


def test_what_sums_are_divided_by_is_public():
    train, judges = split(as_table(X, Y, 3), 0.1)
    assert public_size(2000, 0.1) == 1800
    assert len(train) + len(judges) == 2000 and abs(len(train) - 1800) < train.stray < 100


def test_equal_examples_may_go_to_one_part_together():
    """Pictures that cannot be read are equal rows, and no reason to stop tuning."""
    alone = np.array([[v] * X.shape[1] for v in range(60)], np.float32)
    value = np.flatnonzero(held_out(as_table(alone, np.arange(60) % 3, 3), 0.1))[0]
    features = np.array(X, np.float32)
    features[:400] = value
    train, _ = split(as_table(features, Y, 3), 0.1)
    assert len(train) < 1600 and train.stray < 800
    check_count(len(train), public_size(2000, 0.1), train.stray)


def test_shares_that_leave_a_part_empty_are_rejected():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        held_out(as_table(X, Y, 3), 0.0)
    same = as_table(np.ones((20, 3), np.float32), np.arange(20) % 2, 2)
    with pytest.raises(ValueError, match="of 20 examples leaves no examples to"):
        split(same, 0.5)
