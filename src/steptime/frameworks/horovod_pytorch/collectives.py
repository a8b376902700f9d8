"""Messages as Horovod's optimizer for PyTorch sends gradients: announced by name, then summed in place."""

import horovod
import torch

from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.torch.devices import set_threads
from steptime.worker.framework import FED, BackEnd, Message


class HorovodAllreduce(Message):
    """A gradient, announced by its name in every run as in every step."""

    becomes = FED

    def __init__(self, back_end, count):
        self._hvd = back_end.workers.hvd
        self._name = "message.%d" % count
        self._values = torch.zeros(count)

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        self._hvd.synchronize(self._hvd.allreduce_async_(self._values, op=self._hvd.Sum, name=self._name))

    def result(self):
        return self._values.numpy()


class HorovodBackEnd(BackEnd):
    """One worker in Horovod."""

    messages = {"allreduce": HorovodAllreduce}

    def __init__(self, job, context):
        set_threads(job)
        self.workers = HorovodWorkers("torch", context, job)

    def facts(self):
        return dict(self.workers.facts, framework_version=horovod.__version__, torch=torch.__version__)

    def close(self):
        self.workers.leave()
