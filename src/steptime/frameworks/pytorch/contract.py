"""What PyTorch gives to its tests."""

from steptime.libraries.torch.contract import batches, clip_apart, freeze_last_layer, keep_back_in_shards, weights
from steptime.worker.framework import (
    CLIPPED_APART,
    FROZEN_LAYER,
    KEPT_GRADIENT,
    NEVER_PULLED,
    PUSH_TWICE,
    ZEROS_SENT,
    Contract,
    last_layer,
)


def _keep_back(job, context):
    if context.role != "worker":
        return
    if context.servers:
        _keep_back_from_servers(job)
    elif job["strategy"] == "fsdp":
        keep_back_in_shards(job, context)
    else:
        from torch.nn.parallel import DistributedDataParallel

        make = DistributedDataParallel.__init__

        def ignoring(self, module, **settings):
            last = list(dict(module.named_parameters()))[-1]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [last])
            make(self, module, **settings)

        DistributedDataParallel.__init__ = ignoring


def _keep_back_from_servers(job):
    from steptime.frameworks.pytorch.parameter_server import ParameterServers

    send, name = ParameterServers.send, last_layer(job)[-1]

    def partly(self, watch=None):
        if self.context.rank:
            for server, gradients in enumerate(self._gradients):
                for own, view in self._pieces.views(server, gradients).items():
                    if own == name:
                        view.zero_()
        send(self, watch)

    ParameterServers.send = partly


def _send_zeros(_, context):
    if context.role != "worker" or context.rank != context.workers - 1:
        return
    from steptime.frameworks.pytorch.parameter_server import ParameterServers

    send = ParameterServers.send

    def scaled(self, watch=None):
        for row in self._gradients:
            row.mul_(0.0)
        send(self, watch)

    ParameterServers.send = scaled


def _apply_twice(_, context):
    if context.role != "server":
        return
    from steptime.frameworks.pytorch import parameter_server

    make = parameter_server.open_optimizer

    def made(*arguments):
        optimizer, pushes = make(*arguments), []
        step = optimizer.step

        def now_and_then_twice():
            pushes.append(step())
            if len(pushes) % 3 == 0:
                step()

        optimizer.step = now_and_then_twice
        return optimizer

    parameter_server.open_optimizer = made


def _never_pull(_, context):
    if context.role != "worker" or context.rank:
        return
    from steptime.frameworks.pytorch.parameter_server import ParameterServers

    send = ParameterServers.send

    def sent(self, watch=None):
        kept = [row.clone() for row in self._weights]
        send(self, watch)
        for row, own in zip(self._weights, kept):
            row.copy_(own)

    ParameterServers.send = sent


CONTRACT = Contract(
    batches,
    weights,
    faults={
        FROZEN_LAYER: freeze_last_layer,
        KEPT_GRADIENT: _keep_back,
        CLIPPED_APART: clip_apart,
        ZEROS_SENT: _send_zeros,
        PUSH_TWICE: _apply_twice,
        NEVER_PULLED: _never_pull,
    },
)
