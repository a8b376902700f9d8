"""The rectangles that loaders cut out of photographs."""

import numpy as np
import pytest

from steptime.worker.stored_images import crops

USUAL = {"area": [0.08, 1.0], "aspect": [0.75, 4 / 3], "flip": True}
MANY = np.arange(20_000)


@pytest.mark.parametrize("size", [(500, 375), (32, 32), (7, 2000), (1, 1)])
def test_every_rectangle_lies_inside_its_image(size):
    boxes, _ = crops(USUAL, [size] * len(MANY), 0, 0, MANY)

    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= size).all()


def test_area_and_shape_are_in_their_ranges_and_flips_are_one_half():
    boxes, flips = crops(USUAL, [(1000, 1000)] * len(MANY), 0, 0, MANY)
    share = boxes[:, 2] * boxes[:, 3] / 1e6

    assert 0.079 < share.min() < 0.09
    assert 0.95 < share.max() <= 1
    assert np.log(boxes[:, 2] / boxes[:, 3]).mean() == pytest.approx(0, abs=0.01)
    assert flips.mean() == pytest.approx(0.5, abs=0.02)


def test_the_whole_image_is_cut_where_nothing_is_left_to_chance():
    boxes, flips = crops({"area": [1.0, 1.0], "aspect": [1.0, 1.0], "flip": False}, [(48, 48)] * 5, 0, 0, np.arange(5))

    assert boxes.tolist() == [[0, 0, 48, 48]] * 5
    assert not flips.any()


def test_a_rectangle_depends_on_the_sample_and_not_on_its_batch():
    sizes = np.tile([500, 375], (len(MANY), 1))
    together, flips = crops(USUAL, sizes, 3, 1, MANY)
    alone, flip = crops(USUAL, sizes[:1], 3, 1, [77])

    assert alone[0].tolist() == together[77].tolist()
    assert flip[0] == flips[77]


@pytest.mark.parametrize("other", [(4, 1), (3, 2)], ids=["seed", "epoch"])
def test_another_seed_or_epoch_gives_other_rectangles(other):
    sizes = np.tile([500, 375], (100, 1))

    first, _ = crops(USUAL, sizes, 3, 1, np.arange(100))
    second, _ = crops(USUAL, sizes, *other, np.arange(100))

    assert (first != second).any(axis=1).mean() > 0.95


def test_an_image_that_fits_no_rectangle_is_cut_in_its_middle():
    boxes, _ = crops({"area": [1.0, 1.0], "aspect": [1.0, 1.0], "flip": False}, [(100, 40)], 0, 0, [0])

    assert boxes.tolist() == [[30, 0, 40, 40]]
