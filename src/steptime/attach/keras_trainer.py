"""Keras 3 on JAX: batches, which its functions take from an iterator before the compiled step."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

from . import jax_functions, patches, process

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)
_sources: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def install_jax(module: Any) -> None:
    """Patch the making of the iterators of epochs, and of functions for evaluation, which return the weights, too."""
    for name in ("make_test_function", "make_predict_function"):
        jax_functions.evaluation_made_by(module.JAXTrainer, name)
    patch = patches.Patch(module.JAXEpochIterator, "_get_iterator")
    inner = patch.original

    def _get_iterator(self: Any) -> Any:
        made = inner(self)
        if not patch.on:
            return made
        batches = iter(made)  # as the caller does with it
        try:
            return TimedBatches(patch, batches, _source(self))
        except Exception as error:
            patch.fault(error)
            return batches

    patch.put(_get_iterator)


def _source(iterator: Any) -> int:
    # Of one dataset for all epochs; an id would be used again after its object.
    number = _sources.get(iterator.data_adapter)
    if number is None:
        number = _sources[iterator.data_adapter] = -next(_numbers)
    return number


class TimedBatches:
    """An iterator whose batches are requests to a loader."""

    def __init__(self, patch: patches.Patch, batches: Iterator[Any], source: int) -> None:
        recorder = process.recorder()

        def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
            if recorder.stack or not recorder.is_mine():
                return None
            recorder.request_begin()
            return True

        def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
            recorder.request_end(source, "input" if returned else "epoch")

        self._next = patches.measured(patch, batches.__next__, before, after)

    def __iter__(self) -> TimedBatches:
        return self

    def __next__(self) -> Any:
        return self._next()
