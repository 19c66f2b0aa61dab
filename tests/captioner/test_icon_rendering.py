"""From SVG to picture; pictures that are the same."""

import numpy as np
import pytest

from tfdp.captioner.icons.preparation.icon_dataset import (
    equal_pairs,
    equal_pictures,
    similar_pictures,
    thumbnail,
)
from tfdp.captioner.icons.preparation.icon_rendering import decode, final_frame, rasterize, render


def _svg(body, width=16, height=16):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{body}</svg>'
    )


def test_pictures_are_drawn_on_white_and_come_back_exactly():
    svg = _svg('<rect width="8" height="16" fill="#f00"/>')
    picture = decode(render(svg, 32).image)
    assert picture.shape == (32, 32, 3)
    assert (picture[:, :16] == [255, 0, 0]).all() and (picture[:, 16:] == 255).all()


def test_pictures_that_are_not_square_are_centred():
    wide = rasterize(_svg('<rect width="32" height="16"/>', width=32), 16)
    assert (wide[:4] == 255).all() and (wide[-4:] == 255).all() and (wide[4:12] == 0).all()
    tall = rasterize(_svg('<rect width="16" height="32"/>', height=32), 16)
    np.testing.assert_array_equal(tall, wide.transpose(1, 0, 2))


def test_the_same_svg_gives_the_same_bytes():
    svg = _svg('<circle cx="8" cy="8" r="7" fill="#08f"/>')
    assert render(svg, 32) == render(svg, 32)


@pytest.mark.parametrize(
    ("body", "failure"),
    [("<g/>", "blank"), ('<rect width="16" height="16" fill="#fff"/>', "blank"), ("<g", "")],
)
def test_blank_and_broken_pictures_are_told_not_raised(body, failure):
    result = render(_svg(body), 16)
    assert result.image == b"" and result.failure
    assert not failure or result.failure == failure


def test_animations_are_shown_at_their_end():
    body = (
        '<rect width="16" height="16" opacity="0"><animate fill="freeze" attributeName="opacity" '
        'dur="1s" values="0;1"/></rect>'
    )
    assert "animate" not in final_frame(_svg(body))
    assert not rasterize(final_frame(_svg(body)), 8).any()
    endless = _svg('<rect><animate attributeName="x" repeatCount="indefinite" to="3"/></rect>')
    assert "animate" in final_frame(endless)


def test_equal_pictures_are_marked_after_the_first():
    assert equal_pictures(["a", "b", "a", "a"]).tolist() == [False, False, True, True]


def test_equal_pairs_keep_other_names_on_the_same_side():
    digests = ["a", "a", "a", "a", "b", "b"]
    captions = ["home", "home", "house", "hut", "hut", "cabin"]
    held_out = [False, False, False, True, True, False]
    marks = equal_pairs(digests, captions, held_out)
    assert marks.tolist() == [False, True, False, True, False, True]


def test_similar_pictures_of_one_concept_are_duplicates():
    base = np.full((32, 32, 3), 120, np.uint8)
    pictures = [base, base + 1, base + 10, base + 10, base + 60]
    hashes = np.stack([thumbnail(picture) for picture in pictures])
    marks = similar_pictures(hashes, ["apple", "pear", "apple", "fig", "apple"])
    # Nearly equal: whatever the concept. Less near: only within a concept, to one that stays.
    assert marks.tolist() == [False, True, True, False, False]


def test_marks_do_not_depend_on_the_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    hashes = rng.normal(0, 1, (40, 12)).astype(np.float32)
    hashes[20:] = hashes[:20] + 1e-4
    concepts = [str(i % 7) for i in range(40)]
    whole = similar_pictures(hashes, concepts)
    monkeypatch.setattr("tfdp.captioner.icons.preparation.icon_dataset._BLOCK", 7)
    np.testing.assert_array_equal(similar_pictures(hashes, concepts), whole)
    assert whole.tolist() == [False] * 20 + [True] * 20
