"""Weights that are looked at in pieces are the same weights."""

import tracemalloc

import numpy as np
import pytest

from steptime.runner.equivalence import weight_stream as streaming
from steptime.runner.equivalence.tolerances import update_error, weight_error
from steptime.runner.equivalence.weight_stream import PIECE, InitialWeights, SavedWeights
from steptime.worker.weights import initial_weights
from steptime.workloads.table import build_workload

SHAPES = {"matrix": (3, PIECE // 2 + 5), "exact": (PIECE,), "small": (7,), "image": (2, 3, 5, 5)}


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    stream = np.random.default_rng(0)
    return {name: stream.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def saved(folder, arrays) -> SavedWeights:
    np.savez(folder / "weights-0.npz", **arrays)
    return SavedWeights(folder / "weights-0.npz")


def test_what_was_saved_is_read_back(tmp_path, arrays):
    found = saved(tmp_path, arrays)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found.shape(name) == array.shape
        assert np.array_equal(found[name], array)


def test_no_piece_is_longer_than_said_and_all_are_as_long_but_the_last(tmp_path, arrays):
    lengths = [len(piece) for piece in saved(tmp_path, arrays).pieces("matrix")]
    assert lengths == [PIECE, 3 * SHAPES["matrix"][1] - PIECE]


def test_an_array_saved_by_column_is_read_by_row(tmp_path, arrays):
    by_column = {name: np.asfortranarray(array) for name, array in arrays.items()}
    assert np.array_equal(saved(tmp_path, by_column)["matrix"], arrays["matrix"])


@pytest.mark.parametrize("workload", ["lenet5", "cifar_cnn", "autoencoder"])
def test_initial_weights_in_pieces_are_those_that_the_workers_compute(workload):
    layers = build_workload(workload).to_json()["layers"]
    found, expected = InitialWeights(layers, 3), initial_weights(layers, 3)
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_initial_weights_of_a_residual_workload_start_their_branches_small(monkeypatch):
    monkeypatch.setattr(streaming, "PIECE", 1000)
    layers = build_workload("resnet50", (3, 64, 64), 10).to_json()["layers"]
    found, expected = InitialWeights(layers, 0), initial_weights(layers, 0)
    some = list(expected)[::20]
    assert all(np.array_equal(found[name], expected[name]) for name in some)


def test_errors_in_pieces_are_those_of_whole_arrays(tmp_path, arrays):
    stream = np.random.default_rng(1)
    others = {name: array + 1e-3 * stream.standard_normal(array.shape) for name, array in arrays.items()}
    start = {name: array - 1 for name, array in arrays.items()}
    weights, truth = saved(tmp_path, arrays), others
    largest = {
        name: np.abs(array - truth[name]).max() / max(np.abs(truth[name]).max(), 0.01) for name, array in arrays.items()
    }
    worst = max(largest, key=largest.__getitem__)
    assert weight_error(weights, truth) == (pytest.approx(largest[worst]), worst)
    lengths = {
        name: np.linalg.norm(array - truth[name]) / np.linalg.norm(truth[name] - start[name])
        for name, array in arrays.items()
    }
    worst = max(lengths, key=lengths.__getitem__)
    assert update_error(weights, truth, start) == (pytest.approx(lengths[worst]), worst)


def test_a_difference_in_the_last_piece_is_found(tmp_path, arrays):
    truth = {name: array.copy() for name, array in arrays.items()}
    truth["matrix"][-1, -1] += 1
    assert weight_error(saved(tmp_path, arrays), truth)[1] == "matrix"


def test_comparing_holds_a_small_part_of_the_weights(tmp_path):
    size = 40 * PIECE
    np.savez(tmp_path / "weights-0.npz", large=np.ones(size, np.float32))
    first, second = SavedWeights(tmp_path / "weights-0.npz"), SavedWeights(tmp_path / "weights-0.npz")
    tracemalloc.start()
    weight_error(first, second)
    update_error(first, second, second)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * size / 2
