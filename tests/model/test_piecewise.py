"""Where measured times of messages bend."""

import numpy as np
import pytest

from steptime.model.interconnect import carriage
from steptime.model.measured_links import interconnect_of, pieces

SIZES = 2.0 ** np.arange(10, 23)


def _times(start, per_byte, sizes=SIZES):
    return start + per_byte * sizes


def _switched(at):
    return np.where(at > SIZES, _times(1e-4, 2e-8), _times(1e-3, 8e-9))


def _noisy(times, seed, spread=0.03):
    return times * np.random.default_rng(seed).lognormal(0, spread, len(times))


def test_one_line_is_found_again():
    (piece,) = pieces(SIZES, _times(1e-4, 1e-8))

    assert (piece.size, piece.start_s, piece.per_byte_s) == pytest.approx((0.0, 1e-4, 1e-8))


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_taken_for_a_switch(seed):
    assert len(pieces(SIZES, _noisy(_times(1e-4, 1e-8), seed))) == 1


@pytest.mark.parametrize("at", [2**14, 2**16, 2**18])
@pytest.mark.parametrize("seed", range(5))
def test_a_switch_is_found_between_the_sizes_that_it_parts(at, seed):
    low, high = pieces(SIZES, _noisy(_switched(at), seed))

    # Where both lines cross, nothing tells on which of them the nearest size lies.
    assert at / 2 < high.size <= 2 * at
    assert low.per_byte_s == pytest.approx(2e-8, rel=0.25)
    assert high.per_byte_s == pytest.approx(8e-9, rel=0.25)


def test_an_interconnect_repeats_the_times_that_it_was_made_of():
    found = pieces(SIZES, _switched(2**16))
    workers = 4

    cost = carriage("allreduce", SIZES, workers, interconnect_of(found, steps=6.0, volume=1.5))

    assert cost.alone == pytest.approx(_switched(2**16), rel=1e-6)


def test_times_that_do_not_grow_are_a_line_without_slope():
    (piece,) = pieces(SIZES, np.full(len(SIZES), 1e-3))

    assert piece.per_byte_s == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("sizes", "seconds"), [([1.0], [1.0]), ([1.0, 2.0], [1.0, 0.0]), ([2.0, 1.0], [1.0, 1.0])])
def test_what_is_no_line_is_an_error(sizes, seconds):
    with pytest.raises(ValueError, match="two ascending sizes"):
        pieces(sizes, seconds)
