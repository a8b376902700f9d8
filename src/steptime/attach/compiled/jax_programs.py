"""What the program of a jitted function shows: results that are arguments, gradients, and precisions of products.

JAX has traced a function for its call and keeps what it saw; the user's function is not run again.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import types
from typing import Any, Iterator

from .. import patches

# In JAX's names of operations: forward mode, which reverse mode contains.
DIFFERENTIATED = "jvp("
# Programs inside of one another.
DEEP = 12
# Operations that multiply matrices; the shape of the second argument of the latter is that of a kernel.
_PRODUCT, _CONVOLUTION = "dot_general", "conv_general_dilated"
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
# Of a step's products, below which a precision is left out: a loss, or positions.
_FEW = 0.01
UNKNOWN_LOOP = "how often a loop of its program multiplies is known while it runs alone (lax.while_loop)"
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def program_of(function: Any, arguments: Any) -> Any:
    """Return the program of a call; None of `pmap`, of what was compiled ahead, or of another version of JAX."""
    try:
        return function.trace(*arguments[0], **arguments[1]).jaxpr.jaxpr
    except Exception:
        return None


def is_of_a_library(function: Any) -> bool:
    """Return whether an installed package has a jitted function, as optax those for moments of gradients."""
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    file = getattr(module, "__file__", None)
    return file is not None and not patches.is_user_file(file, patches.library_folders())


def codes_of(function: Any) -> tuple[Any, ...]:
    """Return the code of a jitted function, and of those that it was made of; empty where that is not known."""
    plain = inspect.unwrap(function)
    parts = [plain]
    if isinstance(plain, functools.partial):
        parts = [plain.func, *plain.args, *plain.keywords.values()]
    own = getattr(parts[0], "__func__", parts[0])
    cells = [cell.cell_contents for cell in getattr(own, "__closure__", None) or () if _is_filled(cell)]
    codes = [getattr(getattr(part, "__func__", part), "__code__", None) for part in (*parts, *cells)]
    return tuple(filter(None, codes)) if codes[0] is not None else ()


def kinds_of(structure: Any, leaves: list[Any]) -> str:
    """Return text with the kinds of containers of a call's arguments, those that equinox hands on as structures too."""
    return " ".join(str(each) for each in (structure, *leaves) if type(each).__name__ == "PyTreeDef")


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def passed_on(program: Any, results: int) -> set[int]:
    """Return which results are arguments as they came."""
    if program is None or len(program.outvars) != results:
        return set()
    inputs = {id(each) for each in program.invars}
    return {index for index, each in enumerate(program.outvars) if id(each) in inputs}


def common(given: list[Any], returned: list[Any]) -> list[Any]:
    """Return what both lists have, as often as both have it."""
    left, both = list(given), []
    for shape in returned:
        if shape in left:
            left.remove(shape)
            both.append(shape)
    return both


def holds_gradient(function: Any, arguments: Any, program: Any) -> bool:
    """Return whether a function computes a gradient, by the names that JAX gives operations."""
    if program is not None:
        return _differentiates(program, DEEP)
    return DIFFERENTIATED in _text_of(function, arguments)


def _differentiates(program: Any, deep: int) -> bool:
    return any(DIFFERENTIATED in str(operation.source_info.name_stack) for operation in _operations(program, deep))


def _operations(program: Any, deep: int) -> Iterator[Any]:
    """Yield the operations of a program, and of those inside of it."""
    for operation in getattr(program, "eqns", ()):
        yield operation
        for value in operation.params.values() if deep else ():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                yield from _operations(getattr(inner, "jaxpr", inner), deep - 1)


def add_products(program: Any, sums: dict[str, float], *, on_processor: bool) -> None:
    """Add how often a program multiplies, by precision as data sheets name it; "" where that is not known.

    Other devices multiply numbers of 32 bits in a shorter form, unless they are told the highest precision.
    """
    for operation in _operations(program, DEEP):
        count = _products(operation)
        if not count:
            continue
        name = operation.invars[0].aval.dtype.name
        highest = "HIGHEST" in str(operation.params.get("precision"))
        known = name != "float32" or on_processor or highest
        kind = PRECISIONS.get(name, "") if known else ""
        sums[kind] = sums.get(kind, 0) + count


def _products(operation: Any) -> int:
    """Return how often an operation multiplies and adds, if it is a product of matrices or a convolution."""
    name = operation.primitive.name
    if name not in (_PRODUCT, _CONVOLUTION):
        return 0
    left, right = (each.aval for each in operation.invars[:2])
    if name == _PRODUCT:
        (contracted, _), _ = operation.params["dimension_numbers"]
        inner = math.prod(left.shape[axis] for axis in contracted)
    else:
        inner = math.prod(right.shape) // max(1, right.shape[operation.params["dimension_numbers"].rhs_spec[0]])
    return int(math.prod(operation.outvars[0].aval.shape) * inner)


def repeated_products(program: Any, times: int = 1, deep: int = DEEP) -> int:
    """Return the floating-point operations of products in loops, beyond those of the first round of each.

    Raises ValueError where a loop whose length is not known has some.
    """
    more = 0
    for operation in getattr(program, "eqns", ()):
        more += 2 * _products(operation) * (times - 1)
        name = operation.primitive.name
        for value in operation.params.values() if deep else ():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                body = getattr(inner, "jaxpr", inner)
                if name == "while" and any(map(_products, _operations(body, deep - 1))):
                    raise ValueError(UNKNOWN_LOOP)
                rounds = int(operation.params["length"]) if name == "scan" else 1
                more += repeated_products(body, times * rounds, deep - 1)
    return more


def precisions(sums: dict[str, float]) -> list[str]:
    """Return the precisions in which a notable share of products is computed; empty if one of them is unknown."""
    names = sorted(name for name, count in sums.items() if count > _FEW * sum(sums.values()))
    return [] if "" in names else names


def processor_threads() -> int:
    """Return on how many threads XLA multiplies on a processor: one for each that the process may use."""
    one = _ONE_THREAD in os.environ.get("XLA_FLAGS", "").lower()
    return 1 if one else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gradients_in_loop(program: Any, deep: int = DEEP) -> int:
    """Return how often a program repeats what holds its gradient (`lax.scan`); 1 without a loop, 0 if that is unknown.

    A loop inside of what is differentiated, as over layers, is none of these: JAX names it as a part of that.
    """
    for operation in getattr(program, "eqns", ()):
        if DIFFERENTIATED in str(operation.source_info.name_stack) or not deep:
            continue
        for value in operation.params.values():
            for each in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(each, "jaxpr", each)
                if _differentiates(inner, deep - 1):
                    name, length = operation.primitive.name, operation.params.get("length", 1)
                    return 0 if name == "while" else int(length) * gradients_in_loop(inner, deep - 1)
    return 1


def _text_of(function: Any, arguments: Any) -> str:
    """Return the program as text with the names of its operations; "" where it cannot be had.

    Asking an older `pmap`, which is not a function of Python, would trace the user's function once more.
    """
    mapped = isinstance(function, types.FunctionType)
    try:
        if hasattr(function, "as_text"):
            return str(function.as_text())
        if mapped:
            return str(function.lower(*arguments[0], **arguments[1]).as_text(debug_info=True))
    except Exception:  # of another version of JAX
        return ""
    return ""
