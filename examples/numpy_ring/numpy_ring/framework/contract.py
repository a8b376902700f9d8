"""What numpy_ring gives to its tests: the batches of its loader, its live weights, and faults to plant in it."""

from steptime.worker.batches import open_batches
from steptime.worker.framework import FROZEN_LAYER, KEPT_GRADIENT, Contract, last_layer


def _batches(job, context):
    return open_batches(job, context.rank, context.workers, lambda inputs, targets: (inputs, targets), None)


def _weights(session):
    values = session.network.values
    return (lambda: [values.copy()]), (lambda given: values.__setitem__(slice(None), given[0]))


def _freeze_last_layer(session, job, _):
    """Set the gradients of the last layer to zero."""
    backward, gradients = session.backward, session.network.gradients

    def stopped(loss):
        backward(loss)
        for name in last_layer(job):
            gradients[name][...] = 0

    session.backward = stopped


def _keep_back(session, job, _):
    """Keep the gradient of the last bias out of the exchange."""
    exchange, last = session.exchange, session.network.gradients[last_layer(job)[-1]]

    def partly():
        own = last.copy()
        exchange()
        last[...] = own

    session.exchange = partly


CONTRACT = Contract(_batches, _weights, session_faults={FROZEN_LAYER: _freeze_last_layer, KEPT_GRADIENT: _keep_back})
