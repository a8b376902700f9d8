"""When gradients are ready: hooks on parameters for three backward passes, then on the last of them only."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from . import patches
from .record_file import now

if TYPE_CHECKING:
    from .recorder import Recorder

PASSES = 3


class Gradients:
    """The outermost modules, and the order and times in which their gradients arrive."""

    def __init__(self, recorder: Recorder, compiling: Callable[[], bool]) -> None:
        self.recorder = recorder
        self.compiling = compiling
        self.seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.roots: dict[str, int] = {}
        self.sizes: dict[int, int] = {}
        self.handles: dict[int, Any] = {}
        self.last: set[int] = set()
        self.passes = 0
        self.arrived: list[tuple[int, int]] = []
        self.on = True

    def adopt(self, module: Any) -> None:
        """Put hooks on those parameters of an outermost ``module`` that carry none of ours."""
        self.seen.add(module)
        self.roots[type(module).__name__] = self.roots.get(type(module).__name__, 0) + 1
        if not self.on:
            return
        for parameter in module.parameters():
            key = id(parameter)
            if key in self.sizes or not (parameter.requires_grad and parameter.is_leaf):
                continue
            register = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if register is None:  # torch before 2.1
                return
            self.passes = PASSES
            self.sizes[key] = parameter.numel() * parameter.element_size()
            self.handles[key] = register(Arrival(self, key))

    def arrive(self, key: int) -> None:
        """Note that a gradient is there; called in autograd's thread, which is another on a GPU."""
        at = now()
        self.recorder.last_gradient = at
        if self.passes:
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
            gradients.arrive(self.key)
        except Exception as error:
            gradients.fault(error)

    def __deepcopy__(self, memo: Any) -> Arrival:
        return Arrival(None, self.key)
