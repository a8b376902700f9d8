"""The fault that the gradient of one array is not exchanged, by framework.

Runs in the framework's environment (Python 3.6, numpy, the framework) from a run folder.
"""

import importlib


def planted_servers():
    """Return the module of the faults of servers, which lies in the same folder."""
    return importlib.import_module(__name__.rsplit(".", 1)[0] + ".planted_servers")


def _last_bias(job):
    return job["workload"]["layers"][-1]["parameters"][-1]["name"]


def keep_back(job, context):
    """Keep the gradient of one array, the last bias, from the other workers."""
    if context.role == "worker" or job["framework"] == "tensorflow":
        plant = _KEEP_BACK.get(job["framework"])
        if plant:
            plant(job, context)


def _in_pytorch(job, context):
    if context.servers:
        from steptime.frameworks.pytorch.parameter_server import ParameterServers

        send, name = ParameterServers.send, _last_bias(job)

        def partly(self, watch=None):
            if self.context.rank:
                for server, gradients in enumerate(self._gradients):
                    for own, view in self._pieces.views(server, gradients).items():
                        if own == name:
                            view.zero_()
            send(self, watch)

        ParameterServers.send = partly
    elif job["strategy"] == "fsdp":
        _in_shards(job, context)
    else:
        from torch.nn.parallel import DistributedDataParallel

        make = DistributedDataParallel.__init__

        def ignoring(self, module, **settings):
            last = list(dict(module.named_parameters()))[-1]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [last])
            make(self, module, **settings)

        DistributedDataParallel.__init__ = ignoring


def _in_shards(job, context):
    """The worker that updates a part of the array gets from all workers the mean of its own gradient.

    Which is what it gets when it multiplies its own part by their number, and they send zeros for it.
    """
    import torch

    from steptime.libraries.torch.network import TorchWorkload

    build = TorchWorkload.__init__

    def built(self, workload):
        build(self, workload)
        layer = self.layers[workload["layers"][-1]["name"]]
        factors = torch.zeros(layer.bias.numel())
        if job["strategy"] in ("zero1", "zero2"):  # one row of all arrays, of which the last worker has the end
            factors[:] = context.workers if context.rank == context.workers - 1 else 0
        else:
            share = -(-factors.numel() // context.workers)
            factors[context.rank * share : (context.rank + 1) * share] = context.workers

        def forward(values):
            own = layer.bias * factors
            return torch.nn.functional.linear(values, layer.weight, own + (layer.bias - own).detach())

        layer.forward = forward

    TorchWorkload.__init__ = built


def _in_deepspeed(job, context):
    if job["strategy"] != "allreduce":
        _in_shards(job, context)
        return
    from deepspeed.runtime.engine import DeepSpeedEngine

    reduce = DeepSpeedEngine.buffered_allreduce_fallback

    def partly(self, *arguments, **settings):
        last = list(self.module.parameters())[-1]
        own = last.grad.clone()
        reduce(self, *arguments, **settings)
        last.grad.copy_(own)

    DeepSpeedEngine.buffered_allreduce_fallback = partly


def _in_horovod_pytorch(*_):
    from steptime.frameworks.horovod_pytorch import strategies

    prepare = strategies.HorovodAverage.prepare

    def prepared(self, built):
        module = prepare(self, built)
        start, last = self.optimizer._allreduce_grad_async, list(module.parameters())[-1]

        def begin(parameter):
            if parameter is last:
                row, undone = strategies.InnermostChannels.compress(parameter.grad)
                return (lambda: row), undone
            return start(parameter)

        self.optimizer._allreduce_grad_async = begin
        return module

    strategies.HorovodAverage.prepare = prepared


def _in_tensorflow(_, context):
    if context.servers:
        if context.workers > 1:
            planted_servers().change_in_coordinator(1, lambda gradients: gradients[:-1] + [0.0 * gradients[-1]])
        return
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining

    combine = TensorFlowTraining.combine
    TensorFlowTraining.combine = lambda self, gradients: list(combine(self, gradients))[:-1] + [gradients[-1]]


def _in_tensorflow1(_, context):
    if context.rank:
        from steptime.frameworks.tensorflow1 import strategies

        decayed = strategies.decayed
        strategies.decayed = lambda job, pairs: decayed(job, pairs[:-1] + [(0.0 * pairs[-1][0], pairs[-1][1])])


def _in_jax(job, _):
    from steptime.frameworks.jax import training_step

    mean, name = training_step.mean_of_all, _last_bias(job)
    training_step.mean_of_all = lambda gradients, pack_kb: dict(mean(gradients, pack_kb), **{name: gradients[name]})


def _in_mxnet(job, context):
    if context.rank:
        name = _last_bias(job)

        def change(gradients):
            gradients[name][:] = 0

        planted_servers().change_in_mxnet(change)


def _in_horovod_mxnet(_, __):
    from steptime.frameworks.horovod_mxnet import session

    exchange = session.AveragedUpdate.exchange

    def partly(self):
        self.arriving, arriving = self.arriving[:-1], self.arriving
        exchange(self)
        self.arriving = arriving

    session.AveragedUpdate.exchange = partly


def _in_caffe(_, __):
    from steptime.frameworks.caffe.collectives import ReductionAfterBackward

    finish = ReductionAfterBackward.finish

    def partly(self):
        last = self._pairs[-1][0]
        own = last.copy()
        finish(self)
        last[...] = own * self.world.Get_size()  # of which each worker has computed its share

    ReductionAfterBackward.finish = partly


def _in_reference(job, _):
    adapter = importlib.import_module(__name__.rsplit(".", 1)[0] + ".unplanted")
    connect = adapter.connect
    size = 1
    for axis in job["workload"]["layers"][-1]["parameters"][-1]["shape"]:
        size *= axis

    def connected(context):
        average = connect(context)

        def partly(vector):
            own = vector[-size:].copy()
            average(vector)
            vector[-size:] = own

        partly.close = average.close
        return partly

    adapter.connect = connected


_KEEP_BACK = {
    "pytorch": _in_pytorch,
    "deepspeed": _in_deepspeed,
    "horovod_pytorch": _in_horovod_pytorch,
    "tensorflow": _in_tensorflow,
    "horovod_tensorflow": _in_tensorflow,
    "tensorflow1": _in_tensorflow1,
    "jax": _in_jax,
    "mxnet": _in_mxnet,
    "horovod_mxnet": _in_horovod_mxnet,
    "caffe": _in_caffe,
    "reference": _in_reference,
}


def keep_back_in_session(session, job, _):
    """Likewise, where a session's own objects exchange."""
    if job["framework"] != "chainer":
        return
    communicator = session._communicator
    mean, last = communicator.multi_node_mean_grad, max(session._chain.namedparams())[1]

    def all_but_one(chain, *more):
        own = last.grad.copy()
        mean(chain, *more)
        last.grad[...] = own

    communicator.multi_node_mean_grad = all_but_one
