"""What TensorFlow 1 gives to its tests."""

import itertools
from typing import Any, Sequence

from steptime.worker.framework import (
    FROZEN_LAYER,
    KEPT_GRADIENT,
    NEVER_PULLED,
    PUSH_TWICE,
    STALE_WEIGHTS,
    ZEROS_SENT,
    Contract,
)


def _batches(job, context):
    import tensorflow

    tf1 = tensorflow.compat.v1
    tf1.disable_eager_execution()
    from steptime.frameworks.tensorflow1.loader import GraphNativeBatches

    own = GraphNativeBatches(job, context)
    session = tf1.Session()
    own.start(session)
    for steps in itertools.count():
        try:
            inputs, targets = session.run(own.tensors)
        except tensorflow.errors.OpError as error:
            own.explain(error, steps)
            raise
        yield inputs.transpose(0, 3, 1, 2), targets


def _weights(session):
    """Return the functions of the weights; with a copy of the worker's own, its copy is overwritten."""
    graph, network = session._session, session._strategy.network
    if _OwnCopy.network is not None:
        return _weights_of_servers(graph, network)
    initializers = [variable.initializer for variable in network.variables]
    inputs = [initializer.inputs[1] for initializer in initializers]
    return (
        lambda: graph.run(network._reads),
        lambda given: graph.run(initializers, dict(zip(inputs, given))),
    )


def _weights_of_servers(graph, network):
    initializers = [variable.initializer for variable in _OwnCopy.network.variables]
    unread = [_OwnCopy.starts, _OwnCopy.starts]  # until the first step, servers may not have been given any values

    def get():
        return unread.pop() if unread else graph.run(network._reads)

    return get, lambda given: graph.run(initializers, dict(zip(_OwnCopy.inputs, given)))


def _change_gradients(change):
    """Have ``change`` called with the pairs of this worker's gradients and their variables."""
    from steptime.frameworks.tensorflow1 import strategies

    decayed = strategies.decayed
    strategies.decayed = lambda job, pairs: decayed(job, change(pairs))


def _scaled(pairs, factor):
    return [(factor * gradient, variable) for gradient, variable in pairs]


def _freeze_last_layer(*_):
    _change_gradients(lambda pairs: list(pairs[:-2]) + _scaled(pairs[-2:], 0.0))


def _keep_back(_, context):
    """Send zeros for the last bias from all workers but the first."""
    if context.role == "worker" and context.rank:
        _change_gradients(lambda pairs: list(pairs[:-1]) + _scaled(pairs[-1:], 0.0))


def _send_zeros(_, context):
    if context.role == "worker" and context.rank == context.workers - 1:
        _change_gradients(lambda pairs: _scaled(pairs, 0.0))


def _apply_twice(_, context):
    """Double the gradients of the first worker; without momentum that is a push that is applied twice."""
    if context.role == "worker" and not context.rank:
        _change_gradients(lambda pairs: _scaled(pairs, 2.0))


def _never_pull(job, context):
    if not context.rank:
        _compute_with_own_copy(job, context)


class _OwnCopy(object):
    """Weights of a worker of servers, at which it computes the gradients that it pushes."""

    network: Any = None
    inputs: Sequence[Any] = ()
    """The tensors that an initialiser takes, by variable."""
    starts: Sequence[Any] = ()


def _compute_with_own_copy(job, context):
    """Have a worker of servers compute at an ``_OwnCopy``, which nothing refreshes."""
    if not context.servers or context.role != "worker":
        return
    import tensorflow as tf

    from steptime.frameworks.tensorflow1 import cluster, strategies

    tf1 = tf.compat.v1
    build, enter = strategies.build_gradients, strategies.GraphServers.open

    def built(network, optimizer, batch):
        known = list(tf1.global_variables())
        own = strategies.build_network(job, cluster.worker_device(context.rank))
        _OwnCopy.network, _OwnCopy.inputs, _OwnCopy.starts = own, list(own._starts), list(own._starts.values())
        tf1.get_collection_ref(tf1.GraphKeys.GLOBAL_VARIABLES)[:] = known  # which the first worker gives values to
        network.loss(*batch)  # from which it knows its output's shape
        loss, pairs = build(own, optimizer, batch)
        return loss, [(gradient, shared) for (gradient, _), shared in zip(pairs, network.variables)]

    def opened(self):
        session = enter(self)
        _OwnCopy.network.initialize(session)
        return session

    strategies.build_gradients, strategies.GraphServers.open = built, opened


CONTRACT = Contract(
    _batches,
    _weights,
    faults={
        FROZEN_LAYER: _freeze_last_layer,
        KEPT_GRADIENT: _keep_back,
        ZEROS_SENT: _send_zeros,
        PUSH_TWICE: _apply_twice,
        NEVER_PULLED: _never_pull,
        STALE_WEIGHTS: _compute_with_own_copy,
    },
)
