"""The process settings of TensorFlow, of whatever version: before its import, for gRPC, and behind graph building."""

import gc
import os


def before_import():
    """Quieten TensorFlow and choose its kernels, unless the user's shell has done so."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow leaves oneDNN off where the processor has no AVX-512, although LeNet-5 takes 3.2 times as long then.
    # TensorFlow 1.15 has no such switch.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


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
