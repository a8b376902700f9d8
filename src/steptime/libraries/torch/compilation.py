"""What torch.compile compiles of a step, and how much of the network came into its graphs."""

import contextlib
import os
import shutil
import sys
import sysconfig
from typing import Any, Dict, List

import torch

from steptime.worker.process_context import Job

_COMPILERS = {"cpu": ("CXX", ("g++", "clang++")), "cuda": ("CC", ("gcc", "clang"))}
"""By device: the variable that names a compiler, and those that are looked for. On devices Triton compiles the code
that starts its kernels, which is C.
"""
_PAYS_ON = ("cuda",)
"""Devices on which compiled steps are faster. On devices of CUDA they are by PyTorch's own guide. On processors (one
core of an AMD EPYC, torch 2.13, CPU time of a step): LeNet-5 at batch 64 took 1.8 times the eager time, ResNet-50 at
64x64 and batch 8 between 0.99 and 1.01 times, after 30 and 600 s of compiling on a busy machine. With every layer in
the graphs, two workers took 1.6 times under DDP and 1.4 times under FSDP2 (benchmarks/adapters/settings-busy.csv).
"""
_MODES = {"default": None, "cuda_graphs": "reduce-overhead", "autotune": "max-autotune"}


class Compilation(object):
    """Compiles functions and modules as the job wants it, or leaves them as they are.

    The options are ``compile`` (``yes``, ``no``, or ``auto`` for ``_PAYS_ON``) and ``compile_mode``; frameworks without
    them compile nothing. Nothing is compiled before the first step, which is a warm-up step.
    """

    def __init__(self, job: Job, device_type: str) -> None:
        """Decide whether to compile for a device, ``cpu`` or ``cuda``.

        Raises RuntimeError when ``compile`` is ``yes`` and this machine lacks what it compiles with.
        """
        self._mode = job["options"].get("compile_mode", "default")
        wanted, self._left_out = job["options"].get("compile", "no"), None
        missing = [] if wanted == "no" else missing_packages(device_type)
        if wanted == "auto" and device_type not in _PAYS_ON:
            self._left_out = "measured to be no faster on this device"
        elif wanted == "auto" and missing:
            self._left_out = "this machine lacks %s" % " and ".join(missing)
        elif missing:
            raise RuntimeError(
                "compile: yes needs a compiler (%s) and Python's headers; "
                "fix: apt-get install %s, or compile: auto, which trains without them"
                % (" or ".join(_COMPILERS[device_type][1]), " ".join(missing))
            )
        self.wanted = wanted != "no" and self._left_out is None
        # A pass whose outputs live on is recorded anew: 66 recordings of 35.7 ms in 65 forward passes on an H100.
        self.records_forward_anew = self.wanted and self._mode == "cuda_graphs" and device_type == "cuda"
        if self.wanted:
            import torch._inductor.config as inductor

            # Compilers run in this process and one after the other: helpers would go on living beside the timed steps.
            inductor.compile_threads = 1

    def compiled(self, function: Any) -> Any:
        """Return a function of tensors compiled, or as it is."""
        return torch.compile(function, mode=_MODES[self._mode], dynamic=False) if self.wanted else function

    def compile_forward(self, module: Any) -> None:
        """Compile the forward pass of ``module`` inside its hooks and of whatever wraps it.

        Torch leaves out what a wrapper or a hook calls: its graph ends there, and it compiles no code of ``torch.nn``
        that Python enters by itself. So a function of our own is compiled, with code of its own: torch counts the
        versions of a function by its code, and gives up at the ninth.
        """
        if not self.wanted:
            return
        forward = module.forward

        def own_forward(*inputs: Any, **named: Any) -> Any:
            return forward(*inputs, **named)

        own_forward.__code__ = own_forward.__code__.replace(co_name="own_forward")
        module.forward = self.compiled(own_forward)

    def compile_layers(self, module: Any) -> None:
        """Compile the forward pass of each module inside ``module`` that has parameters and no modules, by itself."""
        for each in module.modules():
            if not any(True for _ in each.children()) and any(True for _ in each.parameters()):
                self.compile_forward(each)

    def eager(self) -> Any:
        """Return a context in which nothing is compiled, and nothing that has been compiled is used."""
        return torch.compiler.set_stance("force_eager") if self.wanted else contextlib.ExitStack()

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts of what is wanted."""
        if self.wanted:
            return {"compile": True, "compile_mode": self._mode}
        return {"compile": False, **({"compile_left_out": self._left_out} if self._left_out else {})}

    def facts_at_end(self, layers: int) -> Dict[str, Any]:
        """Return what torch compiled in this process: operations, graphs, and how often it broke off.

        ``network_in_graphs`` is whether there are as many operations as the network has ``layers`` with parameters.
        """
        if not self.wanted:
            return {}
        from torch._dynamo.utils import counters

        operations = counters["stats"]["calls_captured"]
        return {
            "calls_captured": operations,
            "unique_graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "network_in_graphs": operations >= layers,
        }


def missing_packages(device_type: str) -> List[str]:
    """Return Debian's packages of what torch compiles with for a kind of device, and this machine lacks."""
    variable, compilers = _COMPILERS[device_type]
    own = os.environ.get(variable)
    packages = [] if any(map(shutil.which, [own] if own else compilers)) else [compilers[0]]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        packages.append("python%d.%d-dev" % sys.version_info[:2])
    return packages
