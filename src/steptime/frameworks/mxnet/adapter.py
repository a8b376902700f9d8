"""Training with MXNet: alone, or with the parameter servers of its key-value store."""

from steptime.frameworks.mxnet.keyvalue import OwnUpdate, ServerUpdate, play_role, settle_environment
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights

_STORES = {"ps_sync": "dist_sync", "ps_async": "dist_async"}
_STEPS_AHEAD = 4


def open_session(job, place):
    """Return a session of the strategy ``single``, ``ps_sync`` or ``ps_async``.

    Raises ValueError for a precision or a device that MXNet cannot give.
    """
    if job["precision"] != "fp32":
        raise ValueError("mxnet trains in fp32 only, not in %s; set precision to fp32" % job["precision"])
    settle_environment(job, place)
    return MXNetSession(job, place)


def serve(job, place):
    """Be a server or the scheduler until all workers have left."""
    settle_environment(job, place)
    play_role()


class MXNetSession(Session):
    """One worker: a bound symbol, its batches, and whoever updates its weights."""

    def __init__(self, job, place):
        import mxnet

        from steptime.worker.builders.mxnet import BoundWorkload
        from steptime.worker.loaders.mxnet import batches

        self._mxnet = mxnet
        self._threads = job["threads"]
        self._context = _context(mxnet, job["device"], place.local_rank)
        self._bound = BoundWorkload(job["workload"], job["batch_per_worker"], self._context)
        self._bound.set_weights(initial_weights(job["workload"]["layers"], job["seed"]))
        self._feed = batches(job, place, self._context)
        self._update = _update(mxnet, job, place, self._bound)
        self._steps = 0

    def step(self):
        # The engine runs behind Python. It must not fall behind without end, for every batch that waits takes
        # memory; nor be waited for in each step, because it would then be idle while the next step is issued.
        self._steps += 1
        if self._steps % _STEPS_AHEAD == 0:
            self._bound.losses.wait_to_read()
        self._bound.backpropagate(*next(self._feed))
        self._update.step()

    def wait(self):
        self._mxnet.nd.waitall()

    def clock(self):
        from steptime.worker.builders.mxnet_engine import step_clock

        return step_clock(list(self._bound.weights.values()))

    def loss(self):
        return float(self._bound.losses.asnumpy().mean())

    def parameter_count(self):
        return self._bound.parameter_count()

    def output_shape(self):
        return list(self._bound.outputs.shape)

    def get_weights(self):
        return {name: array.asnumpy() for name, array in self._update.stored_weights().items()}

    def facts(self):
        features = self._mxnet.runtime.Features()
        facts = {
            "framework_version": self._mxnet.__version__,
            "device": str(self._context),
            "threads": self._threads,
            "mkldnn": features.is_enabled("MKLDNN"),
        }
        facts.update(self._update.facts)
        return facts

    def staleness(self):
        return self._update.staleness()

    def close(self):
        self._close_feed()
        self._update.close()

    def abort(self):
        self._update.abandon()
        self._close_feed()

    def _close_feed(self):
        close = getattr(self._feed, "close", None)  # a cycle over synthetic batches holds nothing
        if close is not None:
            close()


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


def _update(mxnet, job, place, bound):
    strategy, settings = job["strategy"], job["optimizer"]
    # Gradients are sums over samples; a synchronous server adds those of all workers before it updates.
    samples = job["batch_per_worker"] * (place.workers if strategy == "ps_sync" else 1)
    own_settings = {
        "learning_rate": settings["learning_rate"],
        "momentum": settings["momentum"],
        "wd": settings["weight_decay"],
        "rescale_grad": 1.0 / samples,
    }
    if strategy == "single":
        return OwnUpdate(mxnet, own_settings, bound)
    return ServerUpdate(mxnet, _STORES[strategy], own_settings, bound)
