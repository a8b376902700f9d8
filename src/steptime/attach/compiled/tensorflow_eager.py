"""TensorFlow outside of graphs: calls of Keras' models, gradients of tapes, and updates by Keras' optimizers.

Of its other back ends, optimizers whose calls are not an update each.

In a graph nothing of this is measured, since the call of the graph is (`tensorflow_functions.py`).
"""

from __future__ import annotations

import importlib
from typing import Any

from .. import patches, process
from ..library_calls import backward_of, forward_of, update_of
from .tensorflow_functions import Updates, in_graph

GATHERED = "a call of Keras' optimizer {name} is a step, of which {count} gather gradients for one update"


def install_tapes(module: Any) -> None:
    """Patch the gradients of a tape."""
    backward_of(module.GradientTape, "gradient", in_graph())


def install_models(module: Any) -> None:
    """Patch the calls of Keras' models, which train where a tape records."""
    if _is_on_tensorflow():
        tapes = importlib.import_module("tensorflow.python.pywrap_tfe")
        forward_of(module.Model, "__call__", lambda *_: not tapes.TFE_Py_TapeSetIsEmpty(), in_graph())


def install_optimizers(module: Any) -> None:
    """Patch the updates of Keras' optimizers, where a graph shows what they gather, or note that."""
    if _is_on_tensorflow():
        update_of(module.BaseOptimizer, "apply", _count, in_graph())
    else:
        patches.measure(module.BaseOptimizer, "build", lambda args, _: patches.CallMark(args[0]), _note_gathering)


def _note_gathering(mark: Any, returned: bool) -> None:
    optimizer = mark.given[0]
    count = getattr(optimizer, "gradient_accumulation_steps", None)
    if returned and count:
        process.note(GATHERED.format(name=getattr(optimizer, "name", ""), count=count))


def _count(optimizer: Any) -> None:
    del optimizer
    Updates.count += 1


def _is_on_tensorflow() -> bool:
    """Return whether Keras computes by TensorFlow; other back ends have patches of their own."""
    return bool(importlib.import_module("keras.src.backend").backend() == "tensorflow")
