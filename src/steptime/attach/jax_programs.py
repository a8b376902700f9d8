"""What the program of a jitted function shows: which results are arguments as they came, and whether it differentiates.

JAX has traced a function for its call and keeps what it saw; the user's function is not run again.
"""

from __future__ import annotations

import types
from typing import Any

# In JAX's names of operations: forward mode, which reverse mode contains.
DIFFERENTIATED = "jvp("
# Programs inside of one another.
DEEP = 12


def program_of(function: Any, arguments: Any) -> Any:
    """Return the program of a call; None of `pmap`, of what was compiled ahead, or of another version of JAX."""
    try:
        return function.trace(*arguments[0], **arguments[1]).jaxpr.jaxpr
    except Exception:
        return None


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
    for operation in getattr(program, "eqns", ()):
        if DIFFERENTIATED in str(operation.source_info.name_stack):
            return True
        for value in operation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if deep and _differentiates(getattr(inner, "jaxpr", inner), deep - 1):
                    return True
    return False


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
