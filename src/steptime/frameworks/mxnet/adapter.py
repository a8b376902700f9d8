"""Training with MXNet: alone, or with the parameter servers of its key-value store."""

import os

from steptime.libraries.mxnet.startup import set_environment
from steptime.worker.framework import Framework, require_own_device

_STORES = {
    ("ps_sync", "host"): "dist_sync",
    ("ps_sync", "device"): "dist_device_sync",
    ("ps_async", "host"): "dist_async",
    ("ps_async", "device"): "dist_device_async",
}
"""MXNet's stores, by strategy and by the memory in which a worker prepares what it sends."""


def set_role(job, context):
    """Write into the environment who this process is and how it computes.

    To be called before MXNet is imported, which reads it once. Workers of the strategy ``single`` get no role.
    """
    set_environment(job)
    if job["strategy"] == "single":
        return
    os.environ.update(
        DMLC_ROLE=context.role,
        DMLC_PS_ROOT_URI=context.root_host,
        DMLC_PS_ROOT_PORT=str(context.root_port),
        DMLC_NUM_SERVER=str(context.servers),
        DMLC_NUM_WORKER=str(context.workers),
        DMLC_INTERFACE=context.interface,
        MXNET_KVSTORE_BIGARRAY_BOUND=str(job["options"]["bigarray_bound"]),
    )
    addresses = {"worker": context.worker_addresses, "server": context.server_addresses}.get(context.role)
    if addresses:
        host, port = addresses[context.rank].rsplit(":", 1)
        os.environ.update(DMLC_NODE_HOST=host, PORT=port)


def open_session(job, context):
    """Return a session of the strategy ``single``, ``ps_sync`` or ``ps_async``.

    Raises ValueError for a precision or a device that MXNet cannot give.
    """
    set_role(job, context)
    import mxnet

    from steptime.libraries.mxnet.startup import use_precision

    use_precision(job)

    from steptime.frameworks.mxnet.key_value_store import ServerUpdate, compression
    from steptime.libraries.mxnet.optimizers import make_optimizer
    from steptime.libraries.mxnet.session import MXNetSession, OwnUpdate

    strategy, options = job["strategy"], job["options"]

    def update(bound):
        # A synchronous server adds the gradients of all workers before it updates.
        optimizer = make_optimizer(job, context.workers if strategy == "ps_sync" else 1)
        if strategy == "single":
            return OwnUpdate(optimizer, bound, options["arrays_per_update"])
        return ServerUpdate(_STORES[strategy, options["store_memory"]], optimizer, bound, compression(options))

    return MXNetSession(job, context, _mx_device(mxnet, job["device"], context.local_rank), update)


def serve(job, context):
    """Be a server or the scheduler until all workers have left."""
    set_role(job, context)
    try:
        import mxnet  # noqa: F401 - the import itself serves, and leaves by SystemExit
    except SystemExit as ending:
        if ending.code:
            raise RuntimeError("the key-value store ended with code %s" % ending.code) from ending


def _mx_device(mxnet, device, number):
    if device == "cpu":
        return mxnet.cpu()
    has = "" if mxnet.runtime.Features().is_enabled("CUDA") else ", which was built without CUDA,"
    require_own_device(number, mxnet.context.num_gpus(), "MXNet %s%s" % (mxnet.__version__, has))
    return mxnet.gpu(number)


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    set_role(job, context)
    from steptime.frameworks.mxnet.key_value_store import KeyValueStoreBackEnd

    return KeyValueStoreBackEnd()


FRAMEWORK = Framework(open_session, serve=serve, open_back_end=open_back_end, serve_back_end=serve)
