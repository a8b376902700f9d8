"""Weights that a small process cannot hold in memory, read or drawn piece by piece."""

import abc
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from steptime.worker.weights import weight_pieces

Array = NDArray[np.floating[Any]]
Weights = Mapping[str, Array]

PIECE = 2**17
"""Values that are held at a time: some megabytes with all copies, where whole arrays may have a gigabyte."""


class Streamed(Weights):
    """Weights by name whose arrays exist only while they are looked at; ``pieces`` never makes a whole one."""

    @abc.abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""

    @abc.abstractmethod
    def pieces(self, name: str) -> Iterator[Array]:
        """Yield an array from its first to its last value, as flat arrays of ``PIECE`` values but for the last."""

    def __getitem__(self, name: str) -> Array:
        shape = self.shape(name)
        return np.concatenate([*self.pieces(name)]).reshape(shape)


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    by_column: bool
    dtype: np.dtype[Any]


class SavedWeights(Streamed):
    """The arrays of an ``npz`` file that ``numpy.savez`` has written."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be read."""
        self._path = path
        self._headers: dict[str, _Header] = {}
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    self._headers[member.removesuffix(".npy")] = _read_header(file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._headers[name].shape

    def pieces(self, name: str) -> Iterator[Array]:
        header = self._headers[name]
        if header.by_column:  # its values do not lie in the order in which they are wanted
            with np.load(self._path) as file:
                yield from pieces_of(file[name])
            return
        with zipfile.ZipFile(self._path) as archive, archive.open(f"{name}.npy") as file:
            _read_header(file)
            while block := file.read(PIECE * header.dtype.itemsize):
                yield np.frombuffer(block, header.dtype)


class InitialWeights(Streamed):
    """The weights from which every worker starts, drawn again whenever they are looked at."""

    def __init__(self, layers: Sequence[Mapping[str, Any]], seed: int) -> None:
        """``layers``: of the workload's JSON."""
        self._layers = layers
        self._seed = seed
        self._places = {
            parameter["name"]: (layer_index, parameter_index)
            for layer_index, layer in enumerate(layers)
            for parameter_index, parameter in enumerate(layer["parameters"])
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        layer_index, parameter_index = self._places[name]
        return tuple(self._layers[layer_index]["parameters"][parameter_index]["shape"])

    def pieces(self, name: str) -> Iterator[Array]:
        yield from weight_pieces(self._layers, self._seed, *self._places[name], PIECE)


def shape_of(weights: Weights, name: str) -> tuple[int, ...]:
    """Return the shape of an array, without reading it where that is possible."""
    return weights.shape(name) if isinstance(weights, Streamed) else weights[name].shape


def together(name: str, *sources: Weights) -> Iterator[tuple[Array, ...]]:
    """Yield the pieces of one array, which all ``sources`` have in the same shape, in double precision."""
    streams = [each.pieces(name) if isinstance(each, Streamed) else pieces_of(each[name]) for each in sources]
    for pieces in zip(*streams, strict=True):
        yield tuple(piece.astype(np.float64) for piece in pieces)


def pieces_of(array: Array) -> Iterator[Array]:
    """Yield an array that is there in flat pieces."""
    flat = array.ravel()
    for start in range(0, flat.size, PIECE):
        yield flat[start : start + PIECE]


def _read_header(file: IO[bytes]) -> _Header:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return _Header(*read(file))
