"""Which samples a worker loads and when."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from steptime.worker.samples import (
    batch_indices,
    epoch_indices,
    hidden_places,
    read_arrays,
    read_index,
    scale_and_shift,
)


def test_shards_of_an_epoch_hold_every_sample_once() -> None:
    """Also where the samples do not divide evenly among the workers."""
    shards = [epoch_indices(11, 3, 0, rank, 3) for rank in range(3)]
    assert sorted(np.concatenate(shards)) == list(range(11))


def test_epochs_and_seeds_shuffle_differently() -> None:
    """And the same ones alike."""
    orders = {(seed, epoch): tuple(epoch_indices(50, epoch, seed, 0, 1)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(set(orders.values())) == 4
    assert orders[1, 1] == tuple(epoch_indices(50, 1, 1, 0, 1))


def test_all_workers_train_on_the_same_epoch() -> None:
    """Though worker 0 has one sample more, which would be enough for another batch."""
    plans = [batch_indices(11, 2, 0, rank, 3) for rank in range(3)]
    epochs = [[epoch for epoch, _ in itertools.islice(plan, 7)] for plan in plans]
    assert epochs == [[0, 1, 2, 3, 4, 5, 6]] * 3


def test_an_incomplete_batch_is_dropped() -> None:
    """Every batch is whole."""
    plan = batch_indices(10, 4, 0, 0, 1)
    taken = list(itertools.islice(plan, 4))
    assert [(epoch, len(indices)) for epoch, indices in taken] == [(0, 4), (0, 4), (1, 4), (1, 4)]


def test_a_batch_larger_than_a_share_is_refused() -> None:
    """Instead of waiting for it without end."""
    with pytest.raises(ValueError, match="a batch of 4 does not fit a worker's share of 3 samples"):
        batch_indices(11, 4, 0, 0, 3)


def test_one_multiplication_and_one_addition_normalise() -> None:
    """The same as (byte / 255 - mean) / std, for each channel."""
    scale, shift = scale_and_shift({"mean": [0.5, 0.25], "std": [0.2, 0.1]}, 2)
    pixels = np.arange(256, dtype=np.uint8).reshape(2, 8, 16)
    expected = (pixels / 255 - np.reshape([0.5, 0.25], (2, 1, 1))) / np.reshape([0.2, 0.1], (2, 1, 1))
    assert np.allclose(pixels * scale + shift, expected, atol=1e-5)


def test_an_index_of_another_length_is_refused(tmp_path: Path) -> None:
    """The folder has changed since the study was planned."""
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"files": [["a.jpg", 0]], "classes": ["a"]}))
    with pytest.raises(ValueError, match="lists 1 files where the job expects 2"):
        read_index({"root": str(tmp_path), "index": str(index), "samples": 2})


def test_arrays_of_another_length_are_refused(tmp_path: Path) -> None:
    """The file has changed since the study was planned."""
    np.savez(tmp_path / "set.npz", images=np.zeros((3, 1, 2, 2), np.uint8), labels=np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="holds 3 images and 3 labels where the job expects 4"):
        read_arrays({"path": str(tmp_path / "set.npz"), "samples": 4})


def test_every_place_of_a_sequence_is_hidden_about_as_often() -> None:
    """As many in each sample, 15 % of them, whatever samples are asked for together."""
    hidden = hidden_places(np.arange(4000), 40)
    assert set(hidden.sum(axis=1)) == {6}
    assert np.abs(hidden.mean(axis=0) - 0.15).max() < 0.025
    assert np.abs((hidden[:, 1:] & hidden[:, :-1]).mean() - 0.15 * 5 / 39) < 0.002
    np.testing.assert_array_equal(hidden_places(np.array([7, 3999]), 40), hidden[[7, 3999]])
