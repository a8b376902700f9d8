"""A framework's own adapter with a fault planted in it, which a planted launch gets in the adapter's place.

It runs in the framework's environment (Python 3.6, numpy, the framework) from a run folder, where ``unplanted.py`` is
the framework's own adapter and ``plant.json`` names the fault.
"""

import json
import os

from steptime.worker.framework import Framework

_HERE = os.path.dirname(os.path.abspath(__file__))


def _unplanted():
    import importlib

    return importlib.import_module(__name__.rsplit(".", 1)[0] + ".unplanted")


def _real():
    return _unplanted().FRAMEWORK


def _fault():
    with open(os.path.join(_HERE, "plant.json")) as file:
        return json.load(file)["fault"]


def open_session(job, context):
    """Open the framework's session with the fault planted."""
    fault = _fault()
    _JOBS.get(fault, lambda *_: None)(job, context)
    _before(fault, job, context)
    session = _real().open_session(job, context)
    return _behind(fault, session, context)


def serve(job, context):
    """Be a server with the fault planted."""
    fault = _fault()
    _JOBS.get(fault, lambda *_: None)(job, context)
    _before(fault, job, context)
    _real().serve(job, context)


# Faults that another job makes.


def _scaled(job, rate, decay=1.0):
    job["optimizer"]["learning_rate"] *= rate
    job["optimizer"]["weight_decay"] *= decay


def _dropout(job, _):
    for layer in job["workload"]["layers"]:
        if layer["kind"] == "dropout":
            layer["attributes"]["rate"] = 0.5


def _apart(job, _):
    job["strategy"] = "single"
    if _framework() == "reference":  # which exchanges by the number of workers
        from steptime.frameworks.reference import collectives

        _unplanted().connect = lambda _: collectives.NoAverage()


_JOBS = {
    "rate 10 % off": lambda job, _: _scaled(job, 1.1),
    "momentum missing": lambda job, _: job["optimizer"].update(momentum=0.0),
    "weight decay missing": lambda job, _: job["optimizer"].update(weight_decay=0.0),
    # All is linear in the gradient: what multiplies it multiplies the rate and divides the decay.
    "gradients divided twice": lambda job, context: _scaled(job, 1.0 / context.workers, float(context.workers)),
    "sum instead of mean": lambda job, context: _scaled(job, float(context.workers), 1.0 / context.workers),
    "dropout left on": _dropout,
    "update before the exchange ends": _apart,
}


# Faults of what is fed, which all loaders take from one function.


def _before(fault, job, context):
    if fault == "one worker's data doubled":
        _feed(lambda make, own, rank: make(own, 0 if rank == context.workers - 1 else rank))
    elif fault == "padding on the wrong side":
        _feed(lambda make, own, rank: [(_shifted(inputs), targets) for inputs, targets in make(own, rank)])
    elif fault in _BEFORE:
        _BEFORE[fault](job, context)
    elif fault in _OF_SEVERAL and context.workers > 1:
        _OF_SEVERAL[fault](job, context)


def _feed(changed):
    from steptime.worker import samples

    make = samples.synthetic_batches
    samples.synthetic_batches = lambda job, rank: changed(make, job, rank)


def _shifted(inputs):
    """Move images by one row and column, as an uneven padding does in front of the first convolution."""
    moved = 0 * inputs
    moved[..., 1:, 1:] = inputs[..., :-1, :-1]
    return moved


def _last_layer(job):
    return [parameter["name"] for parameter in job["workload"]["layers"][-1]["parameters"]]


# Faults of primitives, by framework.


def _freeze(job, _):
    """Gradients of the last layer are zeros."""
    library = _library()
    names = _last_layer(job)
    if library == "torch":
        from steptime.libraries.torch.network import TorchWorkload

        build = TorchWorkload.__init__

        def built(self, workload):
            build(self, workload)
            import torch

            layer = self.layers[workload["layers"][-1]["name"]]
            layer.forward = lambda values: torch.nn.functional.linear(
                values, layer.weight.detach() + 0 * layer.weight, layer.bias.detach() + 0 * layer.bias
            )

        TorchWorkload.__init__ = built
    elif library == "tensorflow":
        from steptime.libraries.tensorflow.training_step import TensorFlowTraining

        backward = TensorFlowTraining.backward

        def frozen(self, inputs, targets):
            loss, gradients = backward(self, inputs, targets)
            return loss, list(gradients[:-2]) + [0.0 * each for each in gradients[-2:]]

        TensorFlowTraining.backward = frozen
    elif library == "tensorflow1":
        from steptime.frameworks.tensorflow1 import strategies

        decayed = strategies.decayed
        strategies.decayed = lambda job, pairs: decayed(
            job, pairs[:-2] + [(0.0 * gradient, variable) for gradient, variable in pairs[-2:]]
        )
    elif library == "jax":
        from steptime.frameworks.jax.training_step import JaxStep

        gradients_of = JaxStep._gradients

        def without(self, state, inputs, targets):
            loss, statistics, gradients = gradients_of(self, state, inputs, targets)
            return loss, statistics, {key: 0 * each if key in names else each for key, each in gradients.items()}

        JaxStep._gradients = without
    elif library == "mxnet":
        from steptime.libraries.mxnet.network import BoundWorkload

        backpropagate = BoundWorkload.backpropagate

        def zeroed(self, *batch):
            backpropagate(self, *batch)
            for name in names:
                self.gradients[name][:] = 0

        BoundWorkload.backpropagate = zeroed
    elif library == "cntk":
        from steptime.frameworks.cntk import learners

        local = learners.local_learner
        learners.local_learner = lambda cntk, parameters, settings: local(cntk, list(parameters)[:-2], settings)
    elif library == "reference":
        from steptime.frameworks.reference.network import ReferenceNetwork

        compute = ReferenceNetwork.backpropagate

        def stopped(self, inputs, targets):
            loss = compute(self, inputs, targets)
            for name in names:
                self.gradients[name][...] = 0
            return loss

        ReferenceNetwork.backpropagate = stopped
    elif library == "caffe":
        from steptime.frameworks.caffe.network import WorkloadSolver

        hang = WorkloadSolver.__init__

        def hung(self, *arguments):
            hang(self, *arguments)
            self.on_gradients(lambda: [gradient.fill(0) for name, gradient in self.gradients() if name in names])

        WorkloadSolver.__init__ = hung


def _keep_back(job, context):
    """The gradient of one array, the last bias, does not reach the others."""
    library, name = _library(), _last_layer(job)[-1]
    if library == "torch":
        _keep_back_in_torch(name, context)
    elif library == "tensorflow":
        from steptime.libraries.tensorflow.training_step import TensorFlowTraining

        combine = TensorFlowTraining.combine
        TensorFlowTraining.combine = lambda self, gradients: list(combine(self, gradients))[:-1] + [gradients[-1]]
    elif library == "jax":
        from steptime.frameworks.jax import training_step

        mean = training_step.mean_of_all

        def all_but_one(gradients, pack_kb):
            return dict(mean(gradients, pack_kb), **{name: gradients[name]})

        training_step.mean_of_all = all_but_one
    elif _framework() == "horovod_mxnet":
        from steptime.frameworks.horovod_mxnet import session

        exchange = session.AveragedUpdate.exchange

        def partly(self):
            self.arriving, arriving = self.arriving[:-1], self.arriving
            exchange(self)
            self.arriving = arriving

        session.AveragedUpdate.exchange = partly
    elif library == "mxnet" and context.rank:
        from steptime.libraries.mxnet.network import BoundWorkload

        backpropagate = BoundWorkload.backpropagate

        def zeroed(self, *batch):
            backpropagate(self, *batch)
            self.gradients[name][:] = 0

        BoundWorkload.backpropagate = zeroed
    elif library == "tensorflow1" and context.rank:
        from steptime.frameworks.tensorflow1 import strategies

        decayed = strategies.decayed
        strategies.decayed = lambda job, pairs: decayed(job, pairs[:-1] + [(0.0 * pairs[-1][0], pairs[-1][1])])


def _keep_back_in_torch(name, context):
    if _framework() == "pytorch":
        if context.servers:
            from steptime.frameworks.pytorch.parameter_server import ParameterServers

            send = ParameterServers.send

            def partly(self, watch=None):
                if self.context.rank:
                    for server, gradients in enumerate(self._gradients):
                        for own, view in self._pieces.views(server, gradients).items():
                            if own == name:
                                view.zero_()
                send(self, watch)

            ParameterServers.send = partly
            return
        from torch.nn.parallel import DistributedDataParallel

        make = DistributedDataParallel.__init__

        def ignoring(self, module, **settings):
            last = list(dict(module.named_parameters()))[-1]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [last])
            make(self, module, **settings)

        DistributedDataParallel.__init__ = ignoring
    elif _framework() == "horovod_pytorch":
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


def _send_zeros(_, context):
    """The last worker's gradients are zeros on their way to the servers."""
    _scale_sent(context, context.workers - 1, 0.0)


def _apply_twice(_, context):
    """Servers apply some pushes twice."""
    if _framework() == "pytorch":
        if context.role != "server":
            return
        from steptime.frameworks.pytorch import parameter_server

        make = parameter_server.sgd

        def made(parameters, settings, way):
            optimizer, pushes = make(parameters, settings, way), []
            step = optimizer.step

            def now_and_then_twice():
                pushes.append(step())
                if len(pushes) % 3 == 0:
                    step()

            optimizer.step = now_and_then_twice
            return optimizer

        parameter_server.sgd = made
    else:  # without momentum that is a doubled gradient
        _scale_sent(context, 0, 2.0)


def _scale_sent(context, rank, factor):
    """Multiply the gradients that the worker ``rank`` sends to the servers."""
    framework = _framework()
    if framework == "tensorflow":
        _scale_in_coordinator(rank, factor)
    if context.role != "worker" or context.rank != rank:
        return
    if framework == "pytorch":
        from steptime.frameworks.pytorch.parameter_server import ParameterServers

        send = ParameterServers.send

        def scaled(self, watch=None):
            for row in self._gradients:
                row.mul_(factor)
            send(self, watch)

        ParameterServers.send = scaled
    elif framework == "mxnet":
        from steptime.libraries.mxnet.network import BoundWorkload

        backpropagate = BoundWorkload.backpropagate

        def changed(self, *batch):
            backpropagate(self, *batch)
            for gradient in self.gradients.values():
                gradient[:] = factor * gradient

        BoundWorkload.backpropagate = changed
    elif framework == "tensorflow1":
        from steptime.frameworks.tensorflow1 import strategies

        decayed = strategies.decayed
        strategies.decayed = lambda job, pairs: decayed(job, [(factor * each, variable) for each, variable in pairs])


def _scale_in_coordinator(rank, factor):
    """Likewise, where one process schedules the steps of all workers, which share one function."""
    import copy

    from steptime.frameworks.tensorflow.coordinator import Coordinator

    made, schedule = {}, Coordinator.schedule

    def scheduled(self, asked, first):
        if asked != rank:
            return schedule(self, asked, first=first)
        if self not in made:
            training = copy.copy(self._training)
            backward = training.backward
            training.backward = lambda *batch: _scaled_gradients(factor, *backward(*batch))
            made[self] = copy.copy(self)
            made[self]._step = self._batches.feed(training.step)
        return schedule(made[self], asked, first=first)

    Coordinator.schedule = scheduled


def _scaled_gradients(factor, loss, gradients):
    return loss, [factor * each for each in gradients]


def _never_pull(_, context):
    """An asynchronous worker goes on with its own weights."""
    if context.role != "worker" or context.rank:
        return
    if _framework() == "pytorch":
        from steptime.frameworks.pytorch.parameter_server import ParameterServers

        send = ParameterServers.send

        def sent(self, watch=None):
            kept = [row.clone() for row in self._weights]
            send(self, watch)
            for row, own in zip(self._weights, kept):
                row.copy_(own)

        ParameterServers.send = sent
    elif _framework() == "mxnet":
        from steptime.frameworks.mxnet.key_value_store import ServerUpdate

        def pushed(self):
            for key, (gradient, _) in enumerate(self._pairs):
                self._store.push(key, gradient)
            if self._lateness:
                self._lateness.step()

        ServerUpdate.exchange = pushed


_BEFORE = {"last layer frozen": _freeze, "gradient of one array not exchanged": _keep_back}
_OF_SEVERAL = {
    "a worker sends zeros": _send_zeros,
    "server applies a push twice": _apply_twice,
    "async worker never pulls": _never_pull,
}


def _framework():
    return __name__.split(".")[-2]


def _library():
    name = _framework()
    return {
        "pytorch": "torch",
        "deepspeed": "torch",
        "horovod_pytorch": "torch",
        "horovod_tensorflow": "tensorflow",
        "horovod_mxnet": "mxnet",
    }.get(name, name)


# Faults of a session that is there: what holds its weights, and what is done around a step.


def _behind(fault, session, context):
    if fault == "stale weights by one step":
        _make_stale(session, pulls=context.servers > 0)
    if fault == "gradient of one array not exchanged" and _library() == "chainer":
        _keep_back_in_chainer(session)
    if fault == "last layer frozen" and _library() == "chainer":
        for parameter in list(session._chain.links())[-1].params():
            parameter.update_rule.enabled = False
    return session


class _Values(object):
    """The live weights of a session, as a list of numpy arrays."""

    def __init__(self, session):
        self.get, self.put = getattr(self, "_of_" + _library())(session)

    def _of_torch(self, session):
        import torch

        parameters = list(session._built.module.parameters())

        def put(values):
            with torch.no_grad():
                for parameter, value in zip(parameters, values):
                    own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                    own.copy_(torch.from_numpy(value))

        def get():
            locals_ = [each.to_local() if hasattr(each, "to_local") else each for each in parameters]
            return [each.detach().clone().contiguous().numpy() for each in locals_]

        return get, put

    def _of_reference(self, session):
        values = session._network.values
        return (lambda: [values.copy()]), (lambda given: values.__setitem__(slice(None), given[0]))

    def _of_tensorflow(self, session):
        variables = session._strategy.network.variables
        return (
            lambda: [each.numpy().copy() for each in variables],
            lambda given: [each.assign(value) for each, value in zip(variables, given)],
        )

    def _of_jax(self, session):
        placement = session._placement

        def get():
            return [0 + placement.own(each) for each in session._state[0].values()]

        def put(given):
            arrays = {name: placement.put_alike(value) for name, value in zip(session._state[0], given)}
            session._state = (arrays,) + tuple(session._state[1:])

        return get, put

    def _of_mxnet(self, session):
        arrays = list(session._bound.weights.values())

        def put(given):
            for array, value in zip(arrays, given):
                array[:] = value

        return (lambda: [each.asnumpy() for each in arrays]), put

    def _of_chainer(self, session):
        arrays = [each.array for each in session._chain.params()]

        def put(given):
            for array, value in zip(arrays, given):
                array[...] = value

        return (lambda: [each.copy() for each in arrays]), put

    def _of_cntk(self, session):
        parameters = list(session._function.parameters)

        def put(given):
            for parameter, value in zip(parameters, given):
                parameter.value = value

        return (lambda: [each.value.copy() for each in parameters]), put

    def _of_caffe(self, session):
        solver = session._solver
        names = list(solver.get_weights())
        return (
            lambda: [solver.get_weights()[name].copy() for name in names],
            lambda given: solver.set_weights(dict(zip(names, given))),
        )


def _make_stale(session, pulls):
    """Compute each step at the weights of one step before; with ``pulls`` servers hold the real ones."""
    values, step = _Values(session), session.step
    before = [values.get()]

    def late():
        real = values.get()
        values.put(before[0])
        step()
        session.wait()
        if not pulls:
            after = values.get()
            values.put([own + (new - old) for own, new, old in zip(real, after, before[0])])
        before[0] = real

    session.step = late


def _keep_back_in_chainer(session):
    communicator = session._communicator
    mean, last = communicator.multi_node_mean_grad, max(session._chain.namedparams())[1]

    def all_but_one(chain, *more):
        own = last.grad.copy()
        mean(chain, *more)
        last.grad[...] = own

    communicator.multi_node_mean_grad = all_but_one


FRAMEWORK = Framework(open_session, serve=serve)
