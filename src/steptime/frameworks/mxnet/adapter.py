"""Training with MXNet: alone, or with the parameter servers of its key-value store."""

from steptime.frameworks.mxnet.keyvalue import ServerUpdate, play_role, settle_role

_STORES = {"ps_sync": "dist_sync", "ps_async": "dist_async"}


def open_session(job, place):
    """Return a session of the strategy ``single``, ``ps_sync`` or ``ps_async``.

    Raises ValueError for a precision or a device that MXNet cannot give.
    """
    if job["precision"] != "fp32":
        raise ValueError("mxnet trains in fp32 only, not in %s; set precision to fp32" % job["precision"])
    settle_role(job, place)
    import mxnet

    from steptime.worker.sessions.mxnet import MXNetSession, OwnUpdate, optimizer_settings

    strategy = job["strategy"]

    def update(bound):
        # A synchronous server adds the gradients of all workers before it updates.
        settings = optimizer_settings(job, place.workers if strategy == "ps_sync" else 1)
        if strategy == "single":
            return OwnUpdate(settings, bound)
        return ServerUpdate(mxnet, _STORES[strategy], settings, bound)

    return MXNetSession(job, place, _context(mxnet, job["device"], place.local_rank), update)


def serve(job, place):
    """Be a server or the scheduler until all workers have left."""
    settle_role(job, place)
    play_role()


def _context(mxnet, device, number):
    if device == "cpu":
        return mxnet.cpu()
    found = mxnet.context.num_gpus()
    if number >= found:
        raise ValueError(
            "worker %d of this host wants CUDA device %d and MXNet %s sees %d; the wheel of PyPI named mxnet has no "
            "CUDA, a build that has can be raced as an existing environment"
            % (number, number, mxnet.__version__, found)
        )
    return mxnet.gpu(number)


def open_exchange(job, place):
    """Return the exchange that the network benchmark times."""
    settle_role(job, place)
    from steptime.frameworks.mxnet.exchanging import Storing

    return Storing()


def serve_exchange(job, place):
    """Be a server or the scheduler of the network benchmark."""
    serve(job, place)
