"""What the graph of a `tf.function` shows: gradients, the variables that it assigns, and batches that it takes itself.

Graphs are looked at once, when a function was called for the first time.
"""

from __future__ import annotations

from typing import Any, Iterator

# Operations that TensorFlow itself names as of a gradient, and those that assign variables.
_GRADIENT = "gradient_tape/"
_ASSIGNS = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
TAKES = "IteratorGetNext"
LOOPS = ("While", "StatelessWhile")
# Operations that call a function for each element of a dataset, as what `for` over one in a `tf.function` makes.
OVER_DATASETS = ("ReduceDataset", "ScanDataset")
_DEEP = 6
# Of an optimizer of Keras that gathers gradients of several batches for an update.
_GATHERS = "gradient_accumulator"


def holds_gradient(graph: Any) -> bool:
    """Return whether a graph computes a gradient."""
    return any(_GRADIENT in operation.name for each in _with_inner(graph, _DEEP) for operation in each.get_operations())


def assigns_weights(graph: Any) -> bool:
    """Return whether a graph assigns a variable that is trained, or one of which that is not known."""
    return any(_assigns_weights(each) for each in _with_inner(graph, _DEEP))


def reads_weights(graph: Any) -> bool:
    """Return whether a graph has a variable that is trained."""
    return any(getattr(each, "trainable", False) for each in _variables(graph))


def gathers_gradients(graph: Any) -> bool:
    """Return whether an optimizer of Keras adds gradients up in a graph."""
    return any(_GATHERS in str(getattr(each, "name", "")) for each in _variables(graph))


def repeats_gradient(graph: Any) -> int:
    """Return how many batches a graph takes, each for a gradient; 1 of one or none, 0 if a loop takes them."""
    for operation in (each for one in _with_inner(graph, _DEEP) for each in one.get_operations()):
        if operation.type in (*LOOPS, *OVER_DATASETS):
            body = graph_of(operation, "body" if operation.type in LOOPS else "f")
            if body is not None and holds_gradient(body):
                return 0
    taken = sum(bool(each.type == TAKES) for one in _with_inner(graph, _DEEP) for each in one.get_operations())
    return max(1, taken)


def graph_of(operation: Any, name: str) -> Any:
    """Return the graph of a function that an operation calls, by the ``name`` of its attribute; None if not known."""
    try:
        return operation.graph._get_function(operation.get_attr(name).name).graph
    except (AttributeError, ValueError):
        return None


def _variables(graph: Any) -> Iterator[Any]:
    for each in _with_inner(graph, _DEEP):
        yield from getattr(each, "variables", ())


def _with_inner(graph: Any, deep: int) -> Iterator[Any]:
    yield graph
    functions = getattr(graph, "_functions", {})
    for each in getattr(functions, "values", list)() if deep else ():
        inner = getattr(each, "graph", None)
        if inner is not None and inner is not graph:
            yield from _with_inner(inner, deep - 1)


def _assigns_weights(graph: Any) -> bool:
    handles = {id(each.handle): each for each in getattr(graph, "variables", ()) if hasattr(each, "handle")}
    captured = {inner.name: handles.get(id(outer)) for outer, inner in getattr(graph, "captures", ())}
    for operation in graph.get_operations():
        if operation.type.startswith(_ASSIGNS) and operation.inputs:
            variable = captured.get(operation.inputs[0].name)
            if variable is None or getattr(variable, "trainable", True):
                return True
    return False
