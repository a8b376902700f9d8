"""What TensorFlow gives to its tests; under servers one process schedules the steps of all workers."""

import copy

from steptime.libraries.tensorflow.contract import batches, clip_apart, freeze_last_layer, keep_back, weights
from steptime.worker.framework import (
    CLIPPED_APART,
    FROZEN_LAYER,
    KEPT_GRADIENT,
    NEVER_PULLED,
    PUSH_TWICE,
    ZEROS_SENT,
    Contract,
)


def _keep_back(job, context):
    if not context.servers:
        keep_back(job, context)
    elif context.workers > 1:
        _change_gradients(1, lambda gradients: gradients[:-1] + [0.0 * gradients[-1]])


def _send_zeros(_, context):
    _change_gradients(context.workers - 1, lambda gradients: [0.0 * each for each in gradients])


def _apply_twice(*_):
    """Double the gradients of the first worker; without momentum that is a push that is applied twice."""
    _change_gradients(0, lambda gradients: [2.0 * each for each in gradients])


def _never_pull(*_):
    _replace_backward(0, _backward_at_first_weights)


def _change_gradients(rank, change):
    """Change a worker's gradients where one process schedules the steps of all workers, which share one function."""

    def backward_of(coordinator):
        backward = coordinator._training.backward

        def changed(*batch):
            loss, gradients = backward(*batch)
            return loss, change(list(gradients))

        return changed

    _replace_backward(rank, backward_of)


def _replace_backward(rank, backward_of):
    """Have the steps of a worker compute their gradients by what ``backward_of`` returns for a coordinator."""
    from steptime.frameworks.tensorflow.coordinator import Coordinator

    made, schedule = {}, Coordinator.schedule

    def scheduled(self, asked, first):
        if asked != rank:
            return schedule(self, asked, first=first)
        if self not in made:
            training = copy.copy(self._training)
            training.backward = backward_of(self)
            made[self] = copy.copy(self)
            made[self]._step = self._batches.feed(training.step)
        return schedule(made[self], asked, first=first)

    Coordinator.schedule = scheduled


def _backward_at_first_weights(coordinator):
    import tensorflow as tf

    from steptime.libraries.tensorflow.network import TensorFlowNetwork
    from steptime.worker.weights import initial_weights

    class Constants(TensorFlowNetwork):
        def _variable(self, start, _):
            return tf.constant(start)

    workload = coordinator._job["workload"]
    network = Constants(workload, initial_weights(workload["layers"], coordinator._job["seed"]))

    def backward(inputs, targets):
        with tf.GradientTape() as tape:
            tape.watch(network.variables)
            loss = network.loss(inputs, targets)
        return loss, tape.gradient(loss, network.variables)

    return backward


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
