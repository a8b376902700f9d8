"""TensorFlow: calls of `tf.function`, of which one with a gradient makes a step, and batches that Python takes."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import os
import weakref
from typing import Any, Callable

from .. import patches, process
from ..account import EPOCH
from ..batch_amount import ARRAYS, BatchAmount
from ..library_calls import first_call_elsewhere, itself, request_begins, requests_of
from ..object_numbers import number_of
from ..record_file import now
from . import tensorflow_flops, tensorflow_graphs
from .argument_amounts import REPEATED as SEVERAL
from .argument_amounts import ArgumentAmounts, is_data, note_amount
from .call_flops import call_flops

HELPER, EVALUATION, STEP = "helper", "evaluation", "step"
# A function with a gradient that assigns no weights, whose update is a call of its own; and such an update.
PASS, UPDATE = "micro-step", "update"
ELSEWHERE = "elsewhere"  # a call in a thread that is not recorded
REASON = "the whole step is one graph, inside which TensorFlow shows no times"
INPUT_REASON = "the graph of the step takes its batches itself (tf.data in a tf.function)"
REPEATED = "a step is a call of {name}, which computes gradients {often}: micro-steps, or steps of their own"
GATHERED = "a step is a call of {name}: the optimizer gathers the gradients of several for one update"


def in_graph() -> Callable[[], bool]:
    """Return a function that returns whether TensorFlow is making a graph."""
    executing: Callable[[], bool] = importlib.import_module("tensorflow.python.eager.context").executing_eagerly
    return lambda: not executing()


def install_iterators(module: Any) -> None:
    """Patch the iterator over a dataset, and the making of one."""
    requests_of(module.OwnedIterator, "__next__", itself, in_graph())
    if hasattr(module.OwnedIterator, "_create_iterator"):
        requests_of(module.OwnedIterator, "_create_iterator", itself, in_graph(), "loader_start")


def install_distributed_iterators(module: Any) -> None:
    """Patch the iterator over a dataset that a strategy divides among replicas, and the making of one."""
    requests_of(module.DistributedIteratorBase, "__next__", itself, in_graph(), read=_read_replicas)
    recorder = process.recorder()

    def after(mark: Any, returned: bool) -> None:
        recorder.request_end(number_of(mark.result) if returned else 0, "loader_start")

    for name in ("DistributedDataset", "DistributedDatasetsFromFunction"):
        if hasattr(module, name):
            patches.measure(getattr(module, name), "__iter__", request_begins(recorder), after, in_graph())


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


class Updates:
    """Counts the updates of weights that are calls of their own."""

    count = 0


class TensorFlowFunctions:
    """The functions of this process, and what each is for."""

    def __init__(self) -> None:
        self.recorder = process.recorder()
        self.known: weakref.WeakKeyDictionary[Any, KnownFunction] = weakref.WeakKeyDictionary()
        self.elsewhere: weakref.WeakSet[Any] = weakref.WeakSet()  # those that do not train, called in other threads
        self.numbers = itertools.count()
        self.roles: set[str] = set()
        self.flops = call_flops()

    def begin(self, args: Any, kwargs: Any) -> Any:
        """Begin a call, as what the first one has shown it to be."""
        recorder, function = self.recorder, args[0]
        if recorder.stack or not recorder.is_mine():
            return None if recorder.is_mine() else self._begin_elsewhere(function, args, kwargs)
        known = self.known.get(function)
        if known is None:
            iterators = list(filter(_is_iterator, (*args[1:], *kwargs.values())))
            if iterators:
                recorder.set_apart()
            shapes = tensorflow_flops.CallShapes((args[1:], kwargs), iterators) if self.flops.wanted else None
            recorder.enter("compile")
            return patches.CallMark("", function, (bool(iterators), shapes, _arrays(args[1:], kwargs)))
        if known.role == HELPER:
            return None
        if known.role == EVALUATION:
            return patches.CallMark(EVALUATION, known, recorder.forward_begin(training=False))
        if known.role == UPDATE:
            recorder.update_begin()
            return patches.CallMark(UPDATE, known, None)
        if known.takes_batches:  # what Python has taken is another's
            recorder.set_apart()
        traces = function.experimental_get_tracing_count()
        recorder.call_begin(known.label, again=known.role == PASS and known.updates == Updates.count)
        if recorder.sources.latest is None and not known.takes_batches:
            note_amount(recorder, known.batch.of(_arrays(args[1:], kwargs)))
        return patches.CallMark(known.role, known, traces)

    def _begin_elsewhere(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Begin a call in another thread, which is the one to record if the call computes a gradient."""
        if self.recorder.begin is not None or function in self.known or function in self.elsewhere:
            return None
        iterators = list(filter(_is_iterator, (*args[1:], *kwargs.values())))
        shapes = tensorflow_flops.CallShapes((args[1:], kwargs), iterators) if self.flops.wanted else None
        return patches.CallMark(ELSEWHERE, function, (bool(iterators), shapes, _arrays(args[1:], kwargs)), now())

    def _end_elsewhere(self, function: Any, seen: Any, begin: int) -> None:
        role = _role([each.graph for each in function._list_all_concrete_functions()])
        if role not in (STEP, PASS):
            self.elsewhere.add(function)
        elif (timed := first_call_elsewhere(begin)) is not None:
            self._learn(function, timed[0], timed[1], seen)

    def end(self, mark: Any, returned: bool) -> None:
        """End it."""
        role, known, seen = mark.given[:3]
        result, mark.result = mark.result, None
        recorder = self.recorder
        if role == ELSEWHERE:
            if returned:
                self._end_elsewhere(known, seen, mark.given[3])
        elif role == EVALUATION:
            recorder.forward_end(seen)
        elif role == UPDATE:
            recorder.update_end(counts=self._is_update())
        elif role in (STEP, PASS):
            if known.takes_batches and not (returned and _has_value(result)):
                self._called_without_batch()
                return
            compiled = known.function().experimental_get_tracing_count() > seen
            recorder.call_end("compile" if compiled else "call")
            self._called(known)
        else:
            timed = recorder.leave("compile")
            if timed is not None and returned:
                self._learn(known, timed[0], timed[1], seen)

    def _called_without_batch(self) -> None:
        """End a call that found its epoch over: what follows is the next step's, whose work has not begun."""
        self.recorder.call_end(EPOCH, counts=False)
        if not self.recorder.micro_steps:
            self.recorder.calls = {EPOCH}

    def _is_update(self) -> bool:
        """Return whether what assigns weights is an update: beside whole steps it is a mean, or another network's."""
        counts = STEP not in self.roles or PASS in self.roles
        Updates.count += counts
        return counts

    def _called(self, known: KnownFunction) -> None:
        known.updates = Updates.count
        self.flops.add(known.operations)
        if known.role == STEP:
            self.recorder.optimizers.append(known.number)

    def _learn(self, function: Any, begin: int, end: int, given: tuple[bool, Any, list[Any]]) -> None:
        takes_batches, shapes, arrays = given
        graphs = [each.graph for each in function._list_all_concrete_functions()]
        known = KnownFunction(function, _role(graphs), next(self.numbers), takes_batches=takes_batches)
        if known.role in (STEP, PASS) and shapes is not None:
            count = functools.partial(tensorflow_flops.operations_of, graphs[-1], shapes)
            known.operations = self.flops.count_program(tensorflow_flops.HOW, count)
        self.known[function] = known
        self.roles.add(known.role)
        if known.role in (STEP, PASS):
            process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
            if takes_batches:
                process.unseen(INPUT_REASON, "input_wait")
            self._say_rank()
            _say_what_a_call_holds(known.name, graphs)
            self.recorder.first_call(known.label, begin, end)
            if min(map(tensorflow_graphs.repeats_gradient, graphs)) != 1:
                known.batch = ArgumentAmounts(SEVERAL)
            if not takes_batches:
                note_amount(self.recorder, known.batch.of(arrays))
            self._called(known)
            if known.role == PASS:  # its update is seen elsewhere
                self.recorder.stepped = False
                self.recorder.compiles = patches.never
        elif known.role == UPDATE:
            if self._is_update():
                self.recorder.by_hand = False
                self.recorder.updated(end)
        elif known.role == EVALUATION:
            self.recorder.first_forward(begin, end)
        self.recorder.file.write({"kind": "function", "name": known.name, "role": known.role}, opens=False)

    def _say_rank(self) -> None:
        try:
            said = json.loads(os.environ.get("TF_CONFIG", "{}"))
            workers = [*said["cluster"].get("chief", []), *said["cluster"].get("worker", [])]
            chiefs = len(said["cluster"].get("chief", []))
            index = int(said["task"]["index"]) + (chiefs if said["task"]["type"] == "worker" else 0)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self.recorder.rank(index, len(workers), "tensorflow")


class KnownFunction:
    """What is known of one function."""

    def __init__(self, function: Any, role: str, number: int, *, takes_batches: bool) -> None:
        self.function = weakref.ref(function)
        self.role = role
        self.number = number
        self.name = str(getattr(function, "name", "function"))
        self.label = f"{self.name} {number}"
        self.takes_batches = takes_batches
        self.updates = 0  # that were seen when it was called last
        self.operations: int | str = 0  # floating-point ones of a call, or why they are not known
        self.batch = ArgumentAmounts()


def _role(graphs: list[Any]) -> str:
    differentiates = any(map(tensorflow_graphs.holds_gradient, graphs))
    if any(map(tensorflow_graphs.assigns_weights, graphs)):
        return STEP if differentiates else UPDATE
    if differentiates:
        return PASS
    return EVALUATION if any(map(tensorflow_graphs.reads_weights, graphs)) else HELPER


def _say_what_a_call_holds(name: str, graphs: list[Any]) -> None:
    times = min(map(tensorflow_graphs.repeats_gradient, graphs))
    if times != 1:
        often = f"{times} times" if times else "in a loop"
        process.note(REPEATED.format(name=name, often=often))
    if any(map(tensorflow_graphs.gathers_gradients, graphs)):
        process.note(GATHERED.format(name=name))


def _arrays(args: Any, kwargs: Any) -> list[Any]:
    """Return the arrays of a call but for variables, those in tuples, lists and dictionaries too."""
    arrays: list[Any] = []
    left = [*args, *kwargs.values()]
    while left and len(arrays) <= ARRAYS:
        value = left.pop(0)
        if isinstance(value, (list, tuple, dict)):
            left[:0] = value.values() if isinstance(value, dict) else value
        elif is_data(value) and not hasattr(value, "assign"):
            arrays.append(value)
    return arrays


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "_iterator_resource") or hasattr(value, "_iterators")


def _has_value(result: Any) -> bool:
    """Return whether a function of Keras has found a batch: what else it returns is a result."""
    asked = getattr(result, "has_value", None)
    return asked is None or bool(asked())
