"""Faults of the exchange between workers and parameter servers, by framework.

Runs in the framework's environment (Python 3.6, numpy, the framework) from a run folder.
"""

import copy
import importlib


def send_zeros(job, context):
    """Set the last worker's gradients to zero on their way to the servers."""
    _scale_sent(job, context, context.workers - 1, 0.0)


def apply_twice(job, context):
    """Have servers apply some pushes twice."""
    if job["framework"] != "pytorch":
        _scale_sent(job, context, 0, 2.0)  # without momentum that is a doubled gradient
    elif context.role == "server":
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


def _scale_sent(job, context, rank, factor):
    """Multiply the gradients that the worker ``rank`` sends to the servers."""
    framework = job["framework"]
    if framework == "tensorflow":
        change_in_coordinator(rank, lambda gradients: [factor * each for each in gradients])
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

        def change(gradients):
            for gradient in gradients.values():
                gradient[:] = factor * gradient

        change_in_mxnet(change)
    elif framework == "tensorflow1":
        from steptime.frameworks.tensorflow1 import strategies

        decayed = strategies.decayed
        strategies.decayed = lambda job, pairs: decayed(job, [(factor * each, variable) for each, variable in pairs])


def change_in_mxnet(change):
    """Have ``change`` called with this worker's gradients by name, before they are pushed."""
    from steptime.libraries.mxnet.network import BoundWorkload

    backpropagate = BoundWorkload.backpropagate

    def changed(self, *batch):
        backpropagate(self, *batch)
        change(self.gradients)

    BoundWorkload.backpropagate = changed


def change_in_coordinator(rank, change):
    """Change a worker's gradients where one process schedules the steps of all workers, which share one function."""

    def backward_of(coordinator):
        backward = coordinator._training.backward

        def changed(*batch):
            loss, gradients = backward(*batch)
            return loss, change(list(gradients))

        return changed

    _replace_in_coordinator(rank, backward_of)


def _replace_in_coordinator(rank, backward_of):
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


def never_pull(job, context):
    """Have an asynchronous worker, the first, go on with its own weights."""
    framework = job["framework"]
    if framework == "tensorflow":
        _replace_in_coordinator(0, _backward_at_first_weights)
    if context.role != "worker" or context.rank:
        return
    if framework == "pytorch":
        from steptime.frameworks.pytorch.parameter_server import ParameterServers

        send = ParameterServers.send

        def sent(self, watch=None):
            kept = [row.clone() for row in self._weights]
            send(self, watch)
            for row, own in zip(self._weights, kept):
                row.copy_(own)

        ParameterServers.send = sent
    elif framework == "mxnet":
        from steptime.frameworks.mxnet.key_value_store import ServerUpdate

        def pushed(self):
            for key, (gradient, _) in enumerate(self._pairs):
                self._store.push(key, gradient)
            if self._lateness:
                self._lateness.step()

        ServerUpdate.exchange = pushed
    elif framework == "tensorflow1":
        weights = importlib.import_module(__name__.rsplit(".", 1)[0] + ".planted_weights")
        weights.compute_with_own_copy(job, context)


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
