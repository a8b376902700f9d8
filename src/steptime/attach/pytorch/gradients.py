"""Gradients of torch: when each is there, and calls for those that a script updates its weights by itself with."""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any, Callable

from .. import patches
from ..object_numbers import number_of
from ..record_file import now
from . import collectives

if TYPE_CHECKING:
    from ..recorder import Recorder
    from .weights import Weights

# Backward passes whose gradients are noted one by one.
PASSES = 3


class UpdatesByHand:
    """Finds calls for gradients that are the backward pass of a step, where the script has no optimizer."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.shapes: list[tuple[int, ...]] = []  # of the weights of such a call
        functional = getattr(torch._C, "_functorch", None)
        self.is_wrapped: Callable[[Any], bool] = getattr(functional, "is_gradtrackingtensor", lambda _: False)

    def begins(self, args: Any, kwargs: Any) -> bool:
        """Return whether the outermost call with these arguments is for several weights; once known, by their shapes.

        Weights are parameters, or what a function is transformed for (`torch.func.grad`).
        """
        recorder = self.recorder
        if not recorder.by_hand or recorder.stack or not recorder.is_mine():
            return False
        asked = kwargs.get("inputs", args[1] if len(args) > 1 else ())
        if not isinstance(asked, (list, tuple)):  # looking at a generator would empty it; `parameters` returns one
            return inspect.isgenerator(asked)
        shapes = [tuple(each.shape) for each in asked]
        if sum(isinstance(each, self.torch.nn.Parameter) or self.is_wrapped(each) for each in asked) > 1:
            self.shapes = shapes
        return len(shapes) > 1 and shapes == self.shapes


class Gradients:
    """The outermost modules, and the order and times in which their gradients arrive."""

    def __init__(self, recorder: Recorder, compiling: Callable[[], bool], weights: Weights) -> None:
        self.recorder = recorder
        self.compiling = compiling
        self.weights = weights
        # By module, whether it has what is trained, and whether it is DDP or holds it.
        self.outermost: weakref.WeakKeyDictionary[Any, tuple[bool, bool]] = weakref.WeakKeyDictionary()
        self.roots: dict[str, int] = {}
        self.sizes: dict[int, int] = {}
        self.handles: dict[int, Any] = {}
        self.last: set[int] = set()
        self.passes = 0
        self.arrived: list[tuple[int, int]] = []
        self.on = True

    def adopt(self, module: Any) -> tuple[bool, bool]:
        """Learn what an outermost ``module`` is, and return it."""
        trainable = any(each.requires_grad for each in module.parameters())
        known = trainable, collectives.goes_through_data_parallel(module)
        if any(hasattr(type(each), "materialize") for each in module.parameters()):
            return known  # a lazy module, which makes its parameters in the first forward
        self.outermost[module] = known
        if trainable:
            self.weights.look_at(module)
            self.roots[type(module).__name__] = self.roots.get(type(module).__name__, 0) + 1
        if trainable and self.on:
            self._put_hooks(module)
        return known

    def _put_hooks(self, module: Any) -> None:
        """Put hooks on those parameters that carry none of ours."""
        for parameter in module.parameters():
            key = number_of(parameter)
            if key in self.sizes or not (parameter.requires_grad and parameter.is_leaf):
                continue
            size = self._bytes_of(parameter)
            if size is None:
                continue
            self.weights.add(parameter)
            register = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if register is None:  # torch before 2.1
                return
            self.passes = PASSES
            self.sizes[key] = size
            self.handles[key] = register(Arrival(self, key))

    def _bytes_of(self, parameter: Any) -> int | None:
        """Return its size; None of a library's own kind of tensor that does not know it."""
        try:
            return int(parameter.numel() * parameter.element_size())
        except Exception as error:
            if patches.raised_by_signal_handler(error):
                raise
            return None

    def arrive(self, key: int) -> None:
        """Note that a gradient is there, of a pass all of whose are noted; in autograd's thread, another on a GPU."""
        at = now()
        self.recorder.last_gradient = at
        self.arrived.append((key, at))

    def backward_ended(self) -> None:
        """Write the arrivals of the pass that has just ended, and after the last such pass keep the last hook."""
        if not self.passes or not self.arrived or not self.recorder.backwards:
            return
        begin, _, end, _ = self.recorder.backwards[-1]
        arrived, self.arrived = self.arrived, []
        self.recorder.file.write(
            {
                "kind": "gradients",
                "roots": self.roots,
                "bytes": sum(self.sizes.values()),
                "ready": [[self.sizes[key], at - begin] for key, at in arrived],
                "backward_ns": end - begin,
            },
            opens=False,
        )
        self.last.add(arrived[-1][0])
        self.passes -= 1
        if not self.passes:
            self._remove(self.handles.keys() - self.last)

    def fault(self, error: Exception) -> None:
        """Remove all hooks after ``error`` in one of them."""
        if patches.raised_by_signal_handler(error):
            raise error
        self.on, self.passes = False, 0
        self._remove(set(self.handles))
        patches.report("hooks on parameters", error)

    def _remove(self, keys: set[int]) -> None:
        for key in keys:
            self.handles.pop(key).remove()


class Arrival:
    """The hook on one parameter; copies of it do nothing."""

    __slots__ = ("gradients", "key")

    def __init__(self, gradients: Gradients | None, key: int) -> None:
        self.gradients = gradients
        self.key = key

    def __call__(self, parameter: Any) -> None:
        del parameter
        gradients = self.gradients
        if gradients is None or not gradients.on or gradients.compiling():
            return
        try:
            if gradients.passes:
                gradients.arrive(self.key)
            else:
                gradients.recorder.last_gradient = now()
        except Exception as error:
            gradients.fault(error)

    def __deepcopy__(self, memo: Any) -> Arrival:
        return Arrival(None, self.key)
