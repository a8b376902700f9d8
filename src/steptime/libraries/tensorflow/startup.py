"""The start of TensorFlow: settings before its import, threads and devices, gRPC, and the garbage of graph building."""

import gc
import os
import sys
from typing import Sequence

from steptime.worker.framework import require_own_device

_TOO_LATE = "oneDNN cannot be switched on any more: this process has imported tensorflow already"
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
"""TensorFlow's switch of oneDNN's kernels: 1, 0, or left to TensorFlow, which asks for AVX-512 VNNI or better."""


def before_import(onednn="default"):
    """Quieten TensorFlow and choose its kernels, unless the launch's environment has done so.

    Args:
        onednn: ``on`` has oneDNN's kernels used; ``default`` leaves the choice to TensorFlow.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if onednn == "on":
        os.environ.setdefault(ONEDNN, "1")


def import_tensorflow(job, local_rank, replicas=1):
    """Return TensorFlow, set up for one process: its kernels and threads, and the devices that it may see.

    The operations of a worker run one after the other, because a second one beside the first would be a second thread;
    with a GPU, on which they only start, there is one thread more.

    Args:
        job: its ``threads`` are those of one operation; its options ``onednn`` and ``xla`` act here.
        local_rank: of the worker on its host; on ``cuda`` it chooses the GPU.
        replicas: how many workers the process computes for, each on a device of its own.

    Raises RuntimeError when ``cuda`` was asked for and there is no GPU for this worker.
    """
    threads, device, options = job["threads"], job["device"], job["options"]
    onednn = options.get("onednn", "default")
    if onednn == "on" and "tensorflow" in sys.modules and ONEDNN not in os.environ:
        raise RuntimeError(_TOO_LATE)
    before_import(onednn)
    if options.get("xla"):
        # XLA has a thread pool of its own that knows nothing of TensorFlow's settings.
        flags = os.environ.get("XLA_FLAGS", "")
        if threads == 1:
            flags += " --xla_cpu_multi_thread_eigen=false"
        os.environ["XLA_FLAGS"] = flags.strip()
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    # A batch that is copied ahead is fetched by a remote call, which takes one of these threads and waits for another.
    tensorflow.config.threading.set_inter_op_parallelism_threads(replicas + (device == "cuda"))
    gpus = tensorflow.config.list_physical_devices("GPU")
    if device == "cuda" and not gpus:
        raise RuntimeError(
            "tensorflow %s sees no GPU; choose the device 'cpu', or an interpreter whose tensorflow has CUDA"
            % tensorflow.__version__
        )
    chosen: Sequence[int] = range(local_rank, local_rank + replicas) if device == "cuda" else ()
    if device == "cuda":
        require_own_device(chosen[-1], len(gpus), "tensorflow")
        # TensorFlow computes in TF32 unless it is told not to.
        tensorflow.config.experimental.enable_tensor_float_32_execution(job["precision"] == "tf32")
    mine = [gpus[index] for index in chosen]
    tensorflow.config.set_visible_devices(mine, "GPU")
    for gpu in mine:  # else the first worker takes all memory, and others on the same GPU find none
        tensorflow.config.experimental.set_memory_growth(gpu, True)
    if device == "cpu" and replicas > 1:
        (processor,) = tensorflow.config.list_physical_devices("CPU")
        parts = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(replicas)]
        tensorflow.config.set_logical_device_configuration(processor, parts)
    return tensorflow


_NOT_BY_PROXY = "no_grpc_proxy"  # gRPC knows it in small letters only


def call_directly(addresses):
    """Keep gRPC from looking for the other processes behind the proxy that the user has for the world outside."""
    hosts = {address.rsplit(":", 1)[0] for address in addresses}
    known = os.environ.get(_NOT_BY_PROXY) or os.environ.get("no_proxy") or ""
    os.environ[_NOT_BY_PROXY] = ",".join([known] * bool(known) + sorted(hosts))


def collect_garbage(*, for_good=False):
    """Collect what the building of graphs left behind, before any step is timed.

    It is so much that Python's next full collection would take as long as dozens of short steps, some hundred steps
    later. With ``for_good``, what is still alive is not looked at again, where Python can do that (3.7).
    """
    gc.collect()
    if for_good:
        getattr(gc, "freeze", gc.collect)()
