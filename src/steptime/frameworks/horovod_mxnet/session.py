"""One worker's training in MXNet: a bound symbol, its batches, and an update that may be averaged by Horovod."""

import horovod
import mxnet

from steptime.frameworks.horovod_mxnet.averaging import NoExchange, SumOfWorkers
from steptime.worker.builders.mxnet import BoundWorkload
from steptime.worker.builders.mxnet_engine import step_clock
from steptime.worker.loaders.mxnet import batches
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights

_STEPS_AHEAD = 4
_SMALL_ARRAY = 10000


class HorovodSession(Session):
    """Forward, backward, exchange and update are all issued to MXNet's engine, which overlaps what it can."""

    def __init__(self, job, place):
        self._threads = job["threads"]
        self._bound = BoundWorkload(job["workload"], job["batch_per_worker"], mxnet.cpu())
        self._bound.set_weights(initial_weights(job["workload"]["layers"], job["seed"]))
        self._exchange = {"single": NoExchange, "allreduce": SumOfWorkers}[job["strategy"]](job, place)
        self._feed = batches(job, place, mxnet.cpu())
        self._weights = list(self._bound.weights.values())
        self._gradients = list(self._bound.gradients.values())
        samples = job["batch_per_worker"] * place.workers  # gradients are sums over samples
        self._update = mxnet.optimizer.get_updater(_optimizer(job["optimizer"], samples, self._weights))
        self._steps = 0

    def step(self):
        # The engine runs behind Python. It must not fall behind without end, for every batch that waits takes
        # memory; nor be waited for in each step, because it would then be idle while the next step is issued.
        self._steps += 1
        if self._steps % _STEPS_AHEAD == 0:
            self._bound.losses.wait_to_read()
        self._bound.backpropagate(*next(self._feed))
        self._exchange.sum(self._gradients)
        # The updater rewrites the list of keys that it is given.
        self._update(list(range(len(self._weights))), self._gradients, self._weights)

    def wait(self):
        mxnet.nd.waitall()

    def clock(self):
        return step_clock(self._weights)

    def loss(self):
        return float(self._bound.losses.asnumpy().mean())

    def parameter_count(self):
        return self._bound.parameter_count()

    def output_shape(self):
        return list(self._bound.outputs.shape)

    def get_weights(self):
        return {name: array.asnumpy() for name, array in self._bound.weights.items()}

    def facts(self):
        facts = {
            "framework_version": horovod.__version__,
            "mxnet": mxnet.__version__,
            "device": str(mxnet.cpu()),
            "threads": self._threads,
            "mkldnn": mxnet.runtime.Features().is_enabled("MKLDNN"),
        }
        facts.update(self._exchange.facts)
        return facts

    def close(self):
        self._close_feed()
        self._exchange.part()

    def abort(self):
        """Leave Horovod to the end of this process: its farewell waits for the others, who may wait for this one."""
        self._close_feed()

    def _close_feed(self):
        close = getattr(self._feed, "close", None)  # a cycle over synthetic batches holds nothing
        if close is not None:
            close()


def _optimizer(settings, samples, weights):
    optimizer = mxnet.optimizer.SGD(
        learning_rate=settings["learning_rate"],
        momentum=settings["momentum"],
        wd=settings["weight_decay"],
        rescale_grad=1.0 / samples,
    )
    # Grouping saves calls, which counts where arrays are small; the grouped kernel is slower where they are large.
    mean = sum(array.size for array in weights) / float(len(weights))
    optimizer.aggregate_num = 4 if mean < _SMALL_ARRAY else 1
    return optimizer
