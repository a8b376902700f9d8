"""``torch.compile`` of the forward pass with its loss, and of the backward pass with them."""

import os
import shutil

import torch

_COMPILERS = ("g++", "clang++")
_PAYS_ON = ("cuda",)
"""Devices on which compiled steps are faster. On devices of CUDA they are by PyTorch's own guide. On processors (one
core of an AMD EPYC, torch 2.13, CPU time of a step): LeNet-5 at batch 64 took 1.8 times the eager time, ResNet-50 at
64x64 and batch 8 between 0.99 and 1.01 times, after 30 and 600 s of compiling on a busy machine.
"""
_MODES = {"default": None, "cuda_graphs": "reduce-overhead", "autotune": "max-autotune"}


def compiled_loss(loss, job, device_type):
    """Return ``(loss, facts)``: the function ``loss`` as the job wants it, compiled or as it is.

    The options are ``compile`` (``yes``, ``no``, or ``auto`` for ``_PAYS_ON``) and ``compile_mode``; frameworks without
    them compile nothing. Nothing is compiled before the first step, which is a warm-up step.

    Args:
        loss: a function of tensors.
        job: the job.
        device_type: ``cpu`` or ``cuda``.

    Raises RuntimeError when ``compile`` is ``yes`` and this machine has no C++ compiler, which processors need.
    """
    wanted, mode = job["options"].get("compile", "no"), job["options"].get("compile_mode", "default")
    if wanted == "no":
        return loss, {"compile": False}
    lacking = device_type == "cpu" and cpp_compiler() is None
    if wanted == "auto" and device_type not in _PAYS_ON:
        return loss, {"compile": False, "compile_left_out": "measured to be no faster on this device"}
    if lacking:
        raise RuntimeError(
            "compile: yes needs a C++ compiler on processors, and none of %s is on PATH; "
            "fix: apt-get install g++, or compile: auto, which trains without one" % " and ".join(_COMPILERS)
        )
    import torch._inductor.config as inductor

    # Compilers run in this process and one after the other: helpers would go on living beside the timed steps.
    inductor.compile_threads = 1
    return torch.compile(loss, mode=_MODES[mode], dynamic=False), {"compile": True, "compile_mode": mode}


def cpp_compiler():
    """Return the C++ compiler that torch would use, or None."""
    own = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, [own] if own else _COMPILERS)), None)
