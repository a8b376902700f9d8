"""TensorFlow: floating-point operations of a function, by the shapes in its graph, which is not run again.

Products count, at two for each multiply-accumulate, as torch counts them: the forward pass and the gradient are in one
graph. Where it fixes no size of a batch, a graph of placeholders is made beside it, in which TensorFlow infers the
shapes that follow from the size that the call or its dataset has.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from typing import Any, Callable, Iterable, Sequence

from .. import patches, process
from .jax_programs import PRECISIONS, precisions
from .tensorflow_graphs import LOOPS, OVER_DATASETS, TAKES, graph_of

# Operations by whose attribute a graph calls a function, and those that run one as often as their condition demands.
_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f", "XlaLaunch": "function"}
_BRANCHES = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(LOOPS, ("cond", "body")),
    **dict.fromkeys(OVER_DATASETS, ("f",)),
}
# Operations whose products no shape shows.
_OPAQUE = ("CudnnRNN", "SparseTensorDenseMatMul", "SparseMatMul", "BlockLSTM", "GRUBlockCell", "XlaCallModule")
# What a graph of shapes has no value for.
_GIVEN = ("Placeholder", "ReadVariableOp", TAKES)
# Datasets that hand on the batches of the one that they are made of.
_SAME_BATCHES = ("Prefetch", "Options", "Repeat", "Shuffle", "Take", "Skip", "Cache", "Map", "ParallelMap", "Model")
_DEEP = 12
HOW = "floating-point operations are those of products in the graph of the step, two for each multiply-accumulate"
UNKNOWN = "the graph fixes no shape of {name} ({kind}): batch(size, drop_remainder=True) fixes that of batches"
REPEATED = "how often {name} ({kind}) computes is not known from the graph"

_batch_sizes: list[int] = []  # of the dataset that Keras has made of arrays last


def install_keras(module: Any) -> None:
    """Note the size of the batches that Keras makes of arrays."""
    if not os.environ.get("STEPTIME_ATTACH_FLOPS"):
        return

    def made(mark: Any, returned: bool) -> None:
        size = getattr(getattr(mark.given[0], "data_adapter", None), "batch_size", None) if returned else None
        _batch_sizes[:] = [size] if isinstance(size, int) else []

    patches.measure(module.TFEpochIterator, "__init__", lambda args, _: patches.CallMark(args[0]), made)


class CallShapes:
    """What a call shows of the sizes that its graph may leave open; keeps no tensor of it."""

    def __init__(self, arguments: Sequence[Any], iterators: Iterable[Any]) -> None:
        """Look at all ``arguments``, among them ``iterators`` over datasets."""
        flat = sys.modules["tensorflow"].nest.flatten(arguments, expand_composites=True)
        self.shapes = [each.shape for each in flat if hasattr(each, "dtype") and hasattr(each, "shape")]
        sizes = {_batch_size(each) for each in iterators}
        self.batch = sizes.pop() if len(sizes) == 1 else None


def operations_of(graph: Any, call: CallShapes) -> int:
    """Return the operations of one call of a function with ``graph``; raises ValueError where they are not known."""
    sums = _sums(_GraphOfShapes(graph, call).needed())
    _write_precisions(sums)
    return sum(sums.values())


def _sums(operations: Iterable[Any]) -> dict[str, int]:
    """Return the sums of operations by the kind of number that is multiplied."""
    sums: dict[str, int] = {}
    for operation in operations:
        product = _PRODUCTS.get(operation.type)
        if product is None:
            continue
        sizes = product(operation)
        if sizes is None or None in sizes:
            raise ValueError(UNKNOWN.format(name=operation.name, kind=operation.type))
        kind = operation.outputs[0].dtype.name
        sums[kind] = sums.get(kind, 0) + 2 * math.prod(size or 0 for size in sizes)
    return sums


def _write_precisions(sums: dict[str, int]) -> None:
    """Write in which precision the step multiplies, and on what, as `steptime peak` measures."""
    tensorflow: Any = sys.modules["tensorflow"]
    on_device = bool(tensorflow.config.list_logical_devices("GPU"))
    shortened = on_device and tensorflow.config.experimental.tensor_float_32_execution_enabled()
    by_precision: dict[str, float] = {}
    for name, number in sums.items():
        precision = "tf32" if shortened and name == "float32" else PRECISIONS.get(name, "")
        by_precision[precision] = by_precision.get(precision, 0) + number
    known = precisions(by_precision)
    if known:
        threads = tensorflow.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))
        device = {"device": "cuda"} if on_device else {"device": "cpu", "threads": threads}
        recorder = process.recorder()
        recorder.file.write({"kind": "weights", "step": recorder.number, "precisions": known, **device}, opens=False)


class _GraphOfShapes:
    """The operations of a function and of those that it calls, and placeholders in place of all that has a value."""

    def __init__(self, graph: Any, call: CallShapes) -> None:
        self.made = importlib.import_module("tensorflow.python.framework.ops").Graph()
        self.batch = call.batch
        own = graph.inputs[: len(graph.inputs) - len(graph.captures)]
        shapes = call.shapes if len(call.shapes) == len(own) else [None] * len(own)
        self.used: list[Any] = []  # by the caller, or by what has no copy
        with self.made.as_default():
            given = [_stand_in(tensor, self.batch, shape) for tensor, shape in zip(own, shapes)]
            given += [_stand_in(tensor, None) for tensor in graph.inputs[len(own) :]]
            self.used += self._copy(graph, given, _DEEP)

    def needed(self) -> list[Any]:
        """Return the operations that TensorFlow runs: a gradient of what is not trained is in the graph alone."""
        ahead = [each.op for each in self.used]
        ahead += [each for each in self.made.get_operations() if each.op_def.is_stateful]
        reached = {}
        while ahead:
            operation = ahead.pop()
            if operation.name not in reached:
                reached[operation.name] = operation
                ahead += [each.op for each in operation.inputs]
        return list(reached.values())

    def _copy(self, graph: Any, given: list[Any], deep: int) -> list[Any]:
        """Copy the operations of ``graph`` with inputs ``given``; return its results."""
        copies = {own.name: new for own, new in zip(graph.inputs, given)}
        elsewhere: list[Any] = []
        for operation in graph.get_operations():
            names = [each.name for each in operation.outputs]
            if names and names[0] in copies:
                continue
            if operation.type in _GIVEN or operation.type in _BRANCHES:
                results = _placeholders(operation, self.batch)
                elsewhere += operation.inputs  # which may be copied later
            else:
                inputs = [copies[each.name] for each in operation.inputs]
                if operation.type in _CALLS and deep:
                    results = self._copy(_called(operation, _CALLS[operation.type]), inputs, deep - 1)
                else:
                    results = self._results(operation, inputs)
            copies.update(zip(names, results))
        self.used += [copies[each.name] for each in elsewhere]
        return [copies[each.name] for each in graph.outputs]

    def _results(self, operation: Any, inputs: list[Any]) -> list[Any]:
        """Return the results of a copy of ``operation``, with the shapes that follow from ``inputs``."""
        if operation.type.startswith(_OPAQUE):
            raise ValueError(REPEATED.format(name=operation.name, kind=operation.type))
        attributes = {name: value for name, value in operation.node_def.attr.items() if not name.startswith("_")}
        types = [each.dtype for each in operation.outputs]
        try:
            copied = self.made.create_op(operation.type, inputs, types, name=operation.name, attrs=attributes)
        except Exception:  # as one that needs a function of the other graph
            self.used += inputs
            return [_stand_in(each, None) for each in operation.outputs]
        for own, new in zip(operation.outputs, copied.outputs):
            new.set_shape(own.shape)  # what the original knows by values
        return list(copied.outputs)


def _called(operation: Any, name: str) -> Any:
    graph = graph_of(operation, name)
    if graph is None:
        raise ValueError(REPEATED.format(name=operation.name, kind=operation.type))
    return graph


def _placeholders(operation: Any, batch: int | None) -> list[Any]:
    """Return what stands for the results of an operation that has a value, or runs graphs as often as that demands."""
    for name in _BRANCHES.get(operation.type, ()):
        if _multiplies(_called(operation, name)):
            raise ValueError(REPEATED.format(name=operation.name, kind=operation.type))
    return [_stand_in(each, batch if operation.type == TAKES else None) for each in operation.outputs]


def _multiplies(graph: Any, deep: int = _DEEP) -> bool:
    """Return whether a graph, or one that it calls, has a product."""
    for operation in graph.get_operations():
        if operation.type in _PRODUCTS or operation.type.startswith(_OPAQUE):
            return True
        for name in (_CALLS.get(operation.type), *_BRANCHES.get(operation.type, ())) if deep else ():
            inner = graph_of(operation, name) if name else None
            if inner is not None and _multiplies(inner, deep - 1):
                return True
    return False


def _stand_in(tensor: Any, batch: int | None, shape: Any = None) -> Any:
    """Return a placeholder of a tensor's kind: of ``shape`` if that is given, or with the open first size a batch's."""
    if shape is None:
        shape = tensor.shape
        if batch is not None and shape.rank and shape[0] is None:
            shape = [batch, *shape[1:]]
    made = importlib.import_module("tensorflow.python.ops.array_ops").placeholder(tensor.dtype, shape)
    importlib.import_module("tensorflow.python.ops.handle_data_util").copy_handle_data(tensor, made)
    return made


def _batch_size(iterator: Any) -> int | None:
    """Return the size of the batches of an iterator, as its dataset or one that this hands on names it."""
    dataset = getattr(iterator, "_dataset", None)
    while dataset is not None:
        size = getattr(dataset, "_batch_size", None)
        if size is not None:
            return int(size)
        if type(dataset).__name__.strip("_").replace("Dataset", "") not in _SAME_BATCHES:
            break
        dataset = getattr(dataset, "_input_dataset", None)
    return _batch_sizes[0] if _batch_sizes else None


# How many multiply-accumulates a product has: the product of the sizes that these return, each None if it is not known.


def _dims(tensor: Any) -> list[int | None] | None:
    return None if tensor.shape.rank is None else list(tensor.shape.as_list())


def _matrices(operation: Any) -> list[int | None] | None:
    left, made = _dims(operation.inputs[0]), _dims(operation.outputs[0])
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return None if left is None or made is None else [*made, left[-2 if transposed else -1]]


def _convolved(passed: Callable[[Any], Any], kernel: Callable[[Any], Any], *, depthwise: bool = False) -> Any:
    """Return the count of a convolution: each element that ``passed`` has, times the ``kernel`` behind it."""

    def sizes(operation: Any) -> list[int | None] | None:
        weights, elements = _dims(kernel(operation)), _dims(passed(operation))
        if weights is None or elements is None:
            return None
        return [*elements, *(weights[:-2] if depthwise else weights[:-1])]

    return sizes


def _einsum(operation: Any) -> list[int | None] | None:
    if len(operation.inputs) < 2:  # noqa: PLR2004 - a sum or a transposition
        return [0]
    equation = operation.get_attr("equation")
    equation = equation.decode() if isinstance(equation, bytes) else equation
    sizes: dict[str, int | None] = {}
    for labels, tensor in zip(equation.partition("->")[0].split(","), operation.inputs):
        dims = _dims(tensor)
        if dims is None:
            return None
        head, dots, tail = labels.partition("...")
        inner = [f"...{place}" for place in range(len(dims) - len(head) - len(tail))] if dots else []
        for label, size in zip([*head, *reversed(inner), *tail], dims):
            sizes[label] = size if sizes.get(label) in (None, 1) else sizes[label]
    return list(sizes.values())


def _result(operation: Any) -> Any:
    return operation.outputs[0]


def _second(operation: Any) -> Any:
    return operation.inputs[1]


def _third(operation: Any) -> Any:
    return operation.inputs[2]


_PRODUCTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    **dict.fromkeys(("Conv2D", "Conv3D", "Conv"), _convolved(_result, _second)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _convolved(_third, _second)),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _convolved(_third, _result)),
    "DepthwiseConv2dNative": _convolved(_result, _second, depthwise=True),
    "DepthwiseConv2dNativeBackpropInput": _convolved(_third, _second, depthwise=True),
    "DepthwiseConv2dNativeBackpropFilter": _convolved(_third, _result, depthwise=True),
}
