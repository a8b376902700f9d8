"""TensorFlow: calls of `tf.function`, of which one with a gradient makes a step, and batches that Python takes."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import weakref
from typing import Any, Callable

from . import patches, process
from .batch_amount import BatchAmount
from .library_calls import requests_of

HELPER, EVALUATION, STEP = "helper", "evaluation", "step"
REASON = "the whole step is one graph, inside which TensorFlow shows no times"
INPUT_REASON = "the graph of the step takes its batches itself (tf.data in a tf.function)"
# Operations that TensorFlow itself names as of a gradient, and those that update variables.
_GRADIENT = "gradient_tape/"
_UPDATE = "ResourceApply"
_DEEP = 6


def in_graph() -> Callable[[], bool]:
    """Return a function that returns whether TensorFlow is making a graph."""
    executing: Callable[[], bool] = importlib.import_module("tensorflow.python.eager.context").executing_eagerly
    return lambda: not executing()


def install_iterators(module: Any) -> None:
    """Patch the iterator over a dataset, and the making of one."""
    numbers = itertools.count(1)
    sources: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def source(iterator: Any) -> int:  # an id would be used again after its object
        number = sources.get(iterator)
        if number is None:
            number = sources[iterator] = -next(numbers)
        return number

    requests_of(module.OwnedIterator, "__next__", source, in_graph())
    if hasattr(module.OwnedIterator, "_create_iterator"):
        requests_of(module.OwnedIterator, "_create_iterator", source, in_graph(), "loader_start")


def install_distributed_iterators(module: Any) -> None:
    """Patch the iterator over a dataset that a strategy divides among replicas."""
    requests_of(module.DistributedIteratorBase, "__next__", id, in_graph(), read=_read_replicas)


def _read_replicas(batch: Any) -> BatchAmount:
    first = batch
    while isinstance(first, (tuple, list, dict)) and first:
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    parts = getattr(first, "values", (first,))
    shapes: list[Any] = [getattr(each, "shape", None) for each in (parts if isinstance(parts, tuple) else ())]
    known = bool(shapes) and all(shape is not None and len(shape) > 0 for shape in shapes)
    return BatchAmount(sum(int(shape[0]) for shape in shapes) if known else None)


def install_functions(module: Any) -> None:
    """Patch the calls of `tf.function`."""
    functions = TensorFlowFunctions()
    patches.measure(module.Function, "__call__", functions.begin, functions.end, in_graph())


class TensorFlowFunctions:
    """The functions of this process, and what each is for."""

    def __init__(self) -> None:
        self.recorder = process.recorder()
        self.roles: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.labels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.numbers = itertools.count()

    def begin(self, args: Any, kwargs: Any) -> Any:
        """Begin a call, as what the first one has shown it to be."""
        recorder, function = self.recorder, args[0]
        if recorder.stack or not recorder.is_mine():
            return None
        role = self.roles.get(function)
        if role == HELPER:
            return None
        if role == EVALUATION:
            return (role, function, recorder.forward_begin(training=False))
        traces = function.experimental_get_tracing_count()
        if role == STEP:
            recorder.call_begin(self.labels[function])
            return (role, function, traces)
        takes = any(hasattr(each, "_iterator_resource") for each in (*args[1:], *kwargs.values()))
        recorder.enter("compile")
        return ("", function, takes)

    def end(self, mark: Any, returned: bool) -> None:
        """End it."""
        role, function, known = mark
        recorder = self.recorder
        if role == EVALUATION:
            recorder.forward_end(known)
        elif role == STEP:
            compiled = function.experimental_get_tracing_count() > known
            recorder.call_end("compile" if compiled else "call")
        else:
            timed = recorder.leave("compile")
            if timed is not None and returned:
                self._learn(function, timed[0], timed[1], takes_batches=known)

    def _learn(self, function: Any, begin: int, end: int, *, takes_batches: bool) -> None:
        graphs = [each.graph for each in function._list_all_concrete_functions()]
        name = str(getattr(function, "name", "function"))
        role = HELPER
        if any(_trains(graph, _DEEP) for graph in graphs):
            role = STEP
            process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
            self.labels[function] = f"{name} {next(self.numbers)}"
            if takes_batches:
                process.unseen(INPUT_REASON, "input_wait")
            self._say_rank()
            self.recorder.first_call(self.labels[function], begin, end)
        elif any(_reads_weights(graph, _DEEP) for graph in graphs):
            role = EVALUATION
            self.recorder.first_forward(begin, end)
        self.roles[function] = role
        self.recorder.file.write({"kind": "function", "name": name, "role": role}, opens=False)

    def _say_rank(self) -> None:
        try:
            said = json.loads(os.environ.get("TF_CONFIG", "{}"))
            workers = [*said["cluster"].get("chief", []), *said["cluster"].get("worker", [])]
            chiefs = len(said["cluster"].get("chief", []))
            index = int(said["task"]["index"]) + (chiefs if said["task"]["type"] == "worker" else 0)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self.recorder.rank(index, len(workers), "tensorflow")


def _inner_graphs(graph: Any) -> list[Any]:
    functions = getattr(graph, "_functions", {})
    found = [getattr(each, "graph", None) for each in getattr(functions, "values", list)()]
    return [each for each in found if each is not None and each is not graph]


def _trains(graph: Any, deep: int) -> bool:
    for operation in graph.get_operations():
        if _GRADIENT in operation.name or operation.type.startswith(_UPDATE):
            return True
    return deep > 0 and any(_trains(each, deep - 1) for each in _inner_graphs(graph))


def _reads_weights(graph: Any, deep: int) -> bool:
    if any(getattr(each, "trainable", False) for each in getattr(graph, "variables", ())):
        return True
    return deep > 0 and any(_reads_weights(each, deep - 1) for each in _inner_graphs(graph))
