"""Sums of a few weights, by which a reader can tell whether ranks hold the same: after steps 1, 2, 4, 8 and so on."""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any

from . import process, torch_collectives

PARAMETERS = 16
ELEMENTS = 64
# Of one that does not lie in one piece, and is copied.
LARGEST_COPY = 100_000
# Libraries by which a script may exchange weights unseen.
CHANNELS = ("mpi4py", "ray", "cupyx.distributed", "hivemind", "bagua", "byteps")
# That join processes by rules of their own.
JOINING = ("accelerate", "lightning", "deepspeed")


class Weights:
    """The parameters that were trained, in the order in which they were first used, which ranks have in common."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.recorder = process.recorder()
        self.known: list[weakref.ref[Any]] = []
        self.attention = self.frozen = False  # whether a module attends, and whether some weights are not trained

    def add(self, parameter: Any) -> None:
        """Take a further parameter."""
        self.known.append(weakref.ref(parameter))

    def look_at(self, module: Any) -> None:
        """Learn whether an outermost module is a transformer that is trained whole."""
        self.attention = self.attention or any("ttention" in type(each).__name__ for each in module.modules())
        self.frozen = self.frozen or not all(each.requires_grad for each in module.parameters())

    def step_closed(self, number: int) -> None:
        """Write the line behind every step whose number is a power of two."""
        if number & (number - 1) or self._is_traced():
            return
        try:
            alive = [parameter for each in self.known if (parameter := each()) is not None]
            plain = [each for each in alive if self._is_plain(each)]
            sums = [self._sum(each) for each in plain[:: max(1, len(plain) // PARAMETERS)][:PARAMETERS]]
        except Exception:  # a device that cannot be read: what is not known is left out
            self.recorder.at_step.remove(self.step_closed)
            return
        line = {
            "kind": "weights",
            "step": number,
            "parameters": len(alive),
            "sums": sums,
            "attention": self.attention,
            "elements": self._elements(plain) if len(plain) == len(alive) else 0,
            "shared": any(each.is_shared() for each in plain[:1] if not each.is_cuda),
            "data_parallel": len(torch_collectives.data_parallel_modules()),
            "bypassed": torch_collectives.data_parallel_passes().bypassed,
            "channels": [*(name for name in CHANNELS if name in sys.modules), *self._calls()],
            "joining": [name for name in JOINING if name in sys.modules],
        }
        self.recorder.file.write({key: value for key, value in line.items() if value})

    def _elements(self, parameters: list[Any]) -> int:
        return 0 if self.frozen else sum(each.numel() for each in parameters)

    def _is_traced(self) -> bool:
        """Return whether reading a weight would be recorded by somebody, or is forbidden."""
        torch = self.torch
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        return bool(modes and modes()) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def _is_plain(self, parameter: Any) -> bool:
        """Return whether reading it is cheap and asks no other rank: shards of a sharded one are left alone."""
        return (
            type(parameter) is self.torch.nn.Parameter
            and not parameter.is_meta
            and parameter.numel() > 0
            and (parameter.is_contiguous() or parameter.numel() <= LARGEST_COPY)
        )

    def _sum(self, parameter: Any) -> float | None:
        with self.torch.no_grad():
            found = math.fsum(parameter.detach().flatten()[:ELEMENTS].tolist())
        return found if math.isfinite(found) else None

    def _calls(self) -> list[str]:
        """Return ways inside of torch by which ranks may exchange unseen: remote calls, and compiled collectives."""
        api = sys.modules.get("torch.distributed.rpc.api")
        compiler = sys.modules.get("torch._dynamo.utils")
        found = ["torch.distributed.rpc"] if api is not None and api._is_current_rpc_agent_set() else []
        if compiler is not None and compiler.counters["stats"].get("unique_graphs"):
            found.append("torch.compile")
        return [*found, "another thread"] if self.recorder.elsewhere else found
