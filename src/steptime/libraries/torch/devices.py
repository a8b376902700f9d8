"""The device of a worker in torch: process settings, waiting and clocks; and torch's process group."""

import os
from typing import Any, Dict, List, Optional, Union

import torch
from torch import distributed

from steptime.libraries.torch.strategy import rendezvous_url
from steptime.worker.clock import EventClock, HostClock, StepClock
from steptime.worker.framework import require_own_device
from steptime.worker.process_context import Job, ProcessContext

_LEFT: List[Any] = []


def join_group(device: Any, context: ProcessContext) -> None:
    """Enter torch's process group of all workers: over gloo on CPUs, over NCCL on CUDA devices."""
    os.environ["GLOO_SOCKET_IFNAME"] = context.interface
    os.environ.setdefault("NCCL_SOCKET_IFNAME", context.nccl_interface)
    distributed.init_process_group(
        device.backend,
        init_method=rendezvous_url(device, context),
        rank=context.rank,
        world_size=context.workers,
        device_id=device.torch_device if device.backend == "nccl" else None,
    )


def leave_group() -> None:
    """Leave torch's process group, if there is one; all workers call it."""
    if distributed.is_available() and distributed.is_initialized():
        keep_group()
        distributed.destroy_process_group()


def keep_group() -> None:
    """Keep torch's process group until the process ends, even if it is left before.

    Its destructor waits for gloo's threads while it holds the interpreter, which these threads may be waiting for to
    let go of a finished exchange: then neither ends.
    """
    _LEFT.append(distributed.group.WORLD)


def set_threads(job: Job) -> None:
    """Set the threads of this process, before anything computes: the first parallel work fixes the second number."""
    torch.set_num_threads(job["threads"])
    torch.set_num_interop_threads(1)


def open_device(job: Job, context: ProcessContext) -> "Union[Cpu, Cuda]":
    """Return the device of this worker, after the process has been set up for it.

    Raises RuntimeError when there is no CUDA device for this worker.
    """
    set_threads(job)
    if job["device"] == "cpu":
        return Cpu()
    return Cuda(context.local_rank, job["precision"], job.get("searches", False))


class Cpu(object):
    """Host computation: a call returns when its work is done."""

    backend = "gloo"

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def wait(self) -> None:
        """Return at once."""

    def clock(self) -> StepClock:
        return HostClock(self.wait)

    def peak_bytes(self) -> Optional[int]:
        """Return None: the memory is the host's."""
        return None

    def facts(self) -> Dict[str, Any]:
        return {
            "device": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "onednn": torch.backends.mkldnn.is_available(),
        }


class Cuda(object):
    """One CUDA device per worker of the host."""

    backend = "nccl"

    def __init__(self, index: int, precision: str, searches: bool) -> None:
        """Take the number of the device, the precision, and whether cuDNN searches its quickest kernels first."""
        require_own_device(index, torch.cuda.device_count(), "torch")
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        torch.backends.cudnn.benchmark = searches  # shapes never change: it pays wherever many steps follow
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"

    def wait(self) -> None:
        """Wait for everything that was issued."""
        torch.cuda.synchronize(self.torch_device)

    def clock(self) -> StepClock:
        return EventClock(_recorded_event, _elapsed_s, self.wait)

    def peak_bytes(self) -> Optional[int]:
        """Return the most bytes of tensors that were on the device at once."""
        return int(torch.cuda.max_memory_allocated(self.torch_device))

    def facts(self) -> Dict[str, Any]:
        return {
            "device": torch.cuda.get_device_name(self.torch_device),
            "threads": torch.get_num_threads(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }


def _recorded_event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _elapsed_s(earlier: Any, later: Any) -> float:
    return earlier.elapsed_time(later) / 1000.0  # torch gives milliseconds
