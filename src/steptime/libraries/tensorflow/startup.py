"""The start of TensorFlow: settings before its import, threads and devices, gRPC, and the garbage of graph building."""

import gc
import os


def before_import():
    """Quieten TensorFlow and choose its kernels, unless the user's shell has done so."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow leaves oneDNN off where the processor has no AVX-512, although LeNet-5 takes 3.2 times as long then.
    # TensorFlow 1.15 has no such switch.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def import_tensorflow(threads, device, local_rank, *, xla=False):
    """Return TensorFlow, set up for one worker: its threads, and the one device that it may see.

    Args:
        threads: of one operation. Operations run one after the other, because a second one beside the first would
            be a second thread.
        device: ``cpu`` or ``cuda``.
        local_rank: of the worker on its host; on ``cuda`` it chooses the GPU, and starts over where there are fewer.
        xla: whether functions will be compiled by XLA.

    Raises RuntimeError when no GPU is there and ``cuda`` was asked for.
    """
    before_import()
    if xla:
        # XLA has a thread pool of its own that knows nothing of TensorFlow's settings.
        flags = os.environ.get("XLA_FLAGS", "")
        if threads == 1:
            flags += " --xla_cpu_multi_thread_eigen=false"
        os.environ["XLA_FLAGS"] = flags.strip()
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    gpus = tensorflow.config.list_physical_devices("GPU")
    if device == "cuda" and not gpus:
        raise RuntimeError(
            "tensorflow %s sees no GPU; choose the device 'cpu', or an interpreter whose tensorflow has CUDA"
            % tensorflow.__version__
        )
    mine = [gpus[local_rank % len(gpus)]] if device == "cuda" else []
    tensorflow.config.set_visible_devices(mine, "GPU")
    for gpu in mine:  # else the first worker takes all memory, and others on the same GPU find none
        tensorflow.config.experimental.set_memory_growth(gpu, True)
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
