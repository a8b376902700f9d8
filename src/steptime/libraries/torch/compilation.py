"""``torch.compile`` of the forward pass with its loss, and of the backward pass with them."""

import os
import shutil
import sys
import sysconfig
from typing import Any, Dict, List, Tuple

import torch

from steptime.worker.process_context import Job

_COMPILERS = ("g++", "clang++")
_PAYS_ON = ("cuda",)
"""Devices on which compiled steps are faster. On devices of CUDA they are by PyTorch's own guide. On processors (one
core of an AMD EPYC, torch 2.13, CPU time of a step): LeNet-5 at batch 64 took 1.8 times the eager time, ResNet-50 at
64x64 and batch 8 between 0.99 and 1.01 times, after 30 and 600 s of compiling on a busy machine.
"""
_MODES = {"default": None, "cuda_graphs": "reduce-overhead", "autotune": "max-autotune"}


def compiled_loss(loss: Any, job: Job, device_type: str) -> Tuple[Any, Dict[str, Any]]:
    """Return ``(loss, facts)``: the function ``loss`` as the job wants it, compiled or as it is.

    The options are ``compile`` (``yes``, ``no``, or ``auto`` for ``_PAYS_ON``) and ``compile_mode``; frameworks without
    them compile nothing. Nothing is compiled before the first step, which is a warm-up step.

    Args:
        loss: a function of tensors.
        job: the job.
        device_type: ``cpu`` or ``cuda``.

    Raises RuntimeError when ``compile`` is ``yes`` and this machine lacks what compiles for processors.
    """
    wanted, mode = job["options"].get("compile", "no"), job["options"].get("compile_mode", "default")
    if wanted == "no":
        return loss, {"compile": False}
    missing = missing_packages() if device_type == "cpu" else []
    if wanted == "auto" and device_type not in _PAYS_ON:
        return loss, {"compile": False, "compile_left_out": "measured to be no faster on this device"}
    if missing:
        raise RuntimeError(
            "compile: yes needs a C++ compiler (%s) and Python's headers on processors; "
            "fix: apt-get install %s, or compile: auto, which trains without them"
            % (" or ".join(_COMPILERS), " ".join(missing))
        )
    import torch._inductor.config as inductor

    # Compilers run in this process and one after the other: helpers would go on living beside the timed steps.
    inductor.compile_threads = 1
    return torch.compile(loss, mode=_MODES[mode], dynamic=False), {"compile": True, "compile_mode": mode}


def missing_packages() -> List[str]:
    """Return Debian's packages of what torch compiles with for processors, and this machine lacks."""
    own = os.environ.get("CXX")
    packages = [] if any(map(shutil.which, [own] if own else _COMPILERS)) else ["g++"]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        packages.append("python%d.%d-dev" % sys.version_info[:2])
    return packages
