"""What MXNet gives to its tests."""

from steptime.libraries.mxnet.contract import batches, change_gradients, freeze_last_layer, weights
from steptime.worker.framework import (
    FROZEN_LAYER,
    KEPT_GRADIENT,
    NEVER_PULLED,
    PUSH_TWICE,
    ZEROS_SENT,
    Contract,
    last_layer,
)


def _keep_back(job, context):
    """Send zeros for the last bias from all workers but the first."""
    name = last_layer(job)[-1]
    if context.role == "worker" and context.rank:
        change_gradients(lambda gradients: gradients[name].__setitem__(slice(None), 0))


def _send_zeros(_, context):
    if context.role == "worker" and context.rank == context.workers - 1:
        _scale_gradients(0.0)


def _apply_twice(_, context):
    """Double the gradients of the first worker; without momentum that is a push that is applied twice."""
    if context.role == "worker" and not context.rank:
        _scale_gradients(2.0)


def _scale_gradients(factor):
    def scale(gradients):
        for gradient in gradients.values():
            gradient[:] = factor * gradient

    change_gradients(scale)


def _never_pull(_, context):
    if context.role != "worker" or context.rank:
        return
    from steptime.frameworks.mxnet.key_value_store import ServerUpdate

    def pushed(self):
        for key, (gradient, _) in enumerate(self._pairs):
            self._store.push(key, gradient)
        if self._lateness:
            self._lateness.step()

    ServerUpdate.exchange = pushed


CONTRACT = Contract(
    batches,
    weights,
    faults={
        FROZEN_LAYER: freeze_last_layer,
        KEPT_GRADIENT: _keep_back,
        ZEROS_SENT: _send_zeros,
        PUSH_TWICE: _apply_twice,
        NEVER_PULLED: _never_pull,
    },
)
