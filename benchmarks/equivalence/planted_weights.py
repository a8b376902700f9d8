"""Faults of the weights that a planted worker computes with: stale ones, and a layer that does not learn.

Runs in the framework's environment (Python 3.6, numpy, the framework) from a run folder.
"""


def library_of(job):
    """Return the name of the library that the framework of a job computes with."""
    name = job["framework"]
    return {
        "pytorch": "torch",
        "deepspeed": "torch",
        "horovod_pytorch": "torch",
        "horovod_tensorflow": "tensorflow",
        "horovod_mxnet": "mxnet",
    }.get(name, name)


def last_layer(job):
    """Return the names of the parameters of the last layer, of which the last is its bias."""
    return [parameter["name"] for parameter in job["workload"]["layers"][-1]["parameters"]]


def freeze_last_layer(job, context):
    """Set the gradients of the last layer to zero."""
    library = library_of(job)
    names = last_layer(job)
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
    elif library == "mxnet" and context.role == "worker":  # a server serves when it imports MXNet, once it has its role
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

        def hung(self, *arguments, **settings):
            hang(self, *arguments, **settings)
            self.on_gradients(lambda: [gradient.fill(0) for name, gradient in self.gradients() if name in names])

        WorkloadSolver.__init__ = hung


class _Values(object):
    """The live weights of a session, as a list of numpy arrays."""

    def __init__(self, session, library):
        self.get, self.put = getattr(self, "_of_" + library)(session)

    def _of_torch(self, session):
        import torch

        def held():
            """Return what a worker holds of each parameter: all, its shard, or with ZeRO 3 both of small ones."""
            found = []
            for parameter in session._built.module.parameters():
                if hasattr(parameter, "ds_tensor"):
                    found.append(parameter.ds_tensor)
                found.append(parameter.to_local() if hasattr(parameter, "to_local") else parameter)
            return found

        def put(values):
            with torch.no_grad():
                for own, value in zip(held(), values):
                    own.copy_(torch.from_numpy(value))

        def get():
            return [each.detach().clone().contiguous().numpy() for each in held()]

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

    def _of_tensorflow1(self, session):
        graph, network = session._session, session._strategy.network
        initializers = [variable.initializer for variable in network.variables]
        inputs = [initializer.inputs[1] for initializer in initializers]
        return (
            lambda: graph.run(network._reads),
            lambda given: graph.run(initializers, dict(zip(inputs, given))),
        )

    def _of_jax(self, session):
        placement = session._placement

        def get():
            return [0 + placement.own(session._state[0][name]) for name in sorted(session._state[0])]

        def put(given):
            arrays = {name: placement.put_alike(value) for name, value in zip(sorted(session._state[0]), given)}
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


def freeze_in_session(session, job, _):
    """Likewise, where a session's own objects say so."""
    if library_of(job) == "chainer":
        for parameter in list(session._chain.links())[-1].params():
            parameter.update_rule.enabled = False


def make_stale(session, job, context):
    """Compute each step at the weights of one step before."""
    if job["framework"] == "tensorflow1" and context.servers:
        _refresh_late(session)
        return
    values, step = _Values(session, library_of(job)), session.step
    # Servers, or the partitions of ZeRO, hold the weights that are updated, and what is put here is a copy of them.
    elsewhere = context.servers > 0 or job["strategy"].startswith("zero")
    before = [values.get()]

    def late():
        real = values.get()
        values.put(before[0])
        step()
        session.wait()
        if not elsewhere:
            after = values.get()
            values.put([own + (new - old) for own, new, old in zip(real, after, before[0])])
        before[0] = real

    session.step = late


class OwnCopy(object):
    """Weights of a worker of TensorFlow 1's servers, at which it computes the gradients that it pushes."""

    network = None
    inputs = ()
    """The tensors that an initialiser takes, by variable."""
    starts = ()


def compute_with_own_copy(job, context):
    """Have a worker of TensorFlow 1's servers compute at an ``OwnCopy``, which nothing refreshes."""
    if job["framework"] != "tensorflow1" or not context.servers or context.role != "worker":
        return
    import tensorflow as tf

    from steptime.frameworks.tensorflow1 import cluster, strategies

    tf1 = tf.compat.v1
    build, enter = strategies.build_gradients, strategies.GraphServers.open

    def built(network, optimizer, batch):
        known = list(tf1.global_variables())
        own = strategies.build_network(job, cluster.worker_device(context.rank))
        OwnCopy.network, OwnCopy.inputs, OwnCopy.starts = own, list(own._starts), list(own._starts.values())
        tf1.get_collection_ref(tf1.GraphKeys.GLOBAL_VARIABLES)[:] = known  # which the first worker gives values to
        network.loss(*batch)  # from which it knows its output's shape
        loss, pairs = build(own, optimizer, batch)
        return loss, [(gradient, shared) for (gradient, _), shared in zip(pairs, network.variables)]

    def opened(self):
        session = enter(self)
        OwnCopy.network.initialize(session)
        return session

    strategies.build_gradients, strategies.GraphServers.open = built, opened


def _refresh_late(session):
    """Give the ``OwnCopy`` of a session, before each step, the weights that servers had before the last one."""
    graph, step = session._session, session.step
    initializers = [variable.initializer for variable in OwnCopy.network.variables]
    known = [OwnCopy.starts]

    def late():
        if len(known) > 1:
            known.append(graph.run(session._strategy.network._reads))
        else:
            known.append(OwnCopy.starts)
        graph.run(initializers, dict(zip(OwnCopy.inputs, known[-2])))
        step()

    session.step = late
