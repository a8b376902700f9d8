"""Messages as Horovod's optimizer for PyTorch sends gradients: by name, negotiated, and summed in place."""

import horovod
import torch

from steptime.frameworks.horovod_pytorch.strategies import WORKERS_OPTIONS
from steptime.worker.exchange import FED, Exchange, Message
from steptime.worker.sessions.horovod import HorovodWorkers


class Negotiating(Exchange):
    """One worker in Horovod."""

    def __init__(self, job, place):
        torch.set_num_threads(job["threads"])
        torch.set_num_interop_threads(1)
        self._workers = HorovodWorkers("torch", place, {name: job["options"][name] for name in WORKERS_OPTIONS})

    def message(self, operation, count):
        if operation != "allreduce":
            raise ValueError("Horovod has no operation %r" % operation)
        return Reduced(self._workers.hvd, count)

    def facts(self):
        return dict(self._workers.facts, framework_version=horovod.__version__, torch=torch.__version__)

    def close(self):
        self._workers.part()

    def abort(self):
        """Leave it to the end of this process: Horovod's farewell waits for the others."""


class Reduced(Message):
    """A gradient, announced by its name in every run as in every step."""

    becomes = FED

    def __init__(self, hvd, count):
        self._hvd = hvd
        self._name = "message.%d" % count
        self._values = torch.zeros(count)

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        self._hvd.synchronize(self._hvd.allreduce_async_(self._values, op=self._hvd.Sum, name=self._name))

    def result(self):
        return self._values.numpy()
