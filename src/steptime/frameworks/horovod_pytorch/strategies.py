"""How workers train with Horovod: alone, without it, or with its optimizer, which averages gradients."""

import horovod
import torch

from steptime.frameworks.horovod_pytorch.ablation import HandleAblation
from steptime.frameworks.horovod_pytorch.collectives import InnermostChannels
from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.torch.strategy import TorchStrategy


class SingleWorker(TorchStrategy):
    """One worker, which has nobody to exchange gradients with."""

    def facts(self):
        return dict(super(SingleWorker, self).facts(), framework_version=horovod.__version__, torch=torch.__version__)


class HorovodAverage(SingleWorker):
    """Every gradient starts on its way as soon as it is there; the update waits for the last one."""

    def __init__(self, job, context, device):
        super(HorovodAverage, self).__init__(job, context, device)
        self._workers = HorovodWorkers("torch", context, job)

    def prepare(self, built):
        module = super(HorovodAverage, self).prepare(built)
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        self.optimizer = self._workers.hvd.DistributedOptimizer(
            self.optimizer, named_parameters=module.named_parameters(), compression=InnermostChannels
        )
        return module

    def update(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()  # gives the memory back, as torch's does by default

    def ablate(self):
        return HandleAblation(self, self._workers.hvd.mpi_ops, self._names)

    def facts(self):
        return dict(super(HorovodAverage, self).facts(), running_statistics="per worker", **self._workers.facts)

    def leave(self):
        self._workers.leave()

    def abort(self):
        """Leave it to the end of this process: Horovod's farewell waits for the others, who may wait for this one."""


STRATEGIES = {"single": SingleWorker, "allreduce": HorovodAverage}
