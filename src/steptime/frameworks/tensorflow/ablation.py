"""The step of a worker of ParameterServerStrategy with stages taken away, as its coordinator runs it."""

import tensorflow as tf

from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.startup import clear_away
from steptime.libraries.tensorflow.training_step import TensorFlowTraining
from steptime.worker.weights import initial_weights


def ablation_stages_of(job, training, batches):
    """Return the stages of ``Session.stages`` for the worker whose device is in force.

    The stages before the exchange have weights of their own, on the worker, so that nothing is pulled in them. What
    is pushed without being computed is zeros, because the servers apply it.

    Args:
        job: of the launch.
        training: the ``CountedTraining`` of all workers.
        batches: of this worker, of which one is taken and held.
    """
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    network = TensorFlowNetwork(job["workload"], weights, job["precision"])
    own = TensorFlowTraining(network, job["optimizer"])
    take = batches.taker()
    held = take()
    zeros = [tf.zeros(variable.shape) for variable in network.variables]
    stages = {
        "forward": _on(own.forward, *held),
        "backward": _on(own.backward, *held),
        "exchange": _on(training.step, *held),
        "communication": _on(training.exchange, zeros),
        "input": take,
    }
    clear_away()
    return stages


def _on(function, *arguments):
    compiled = tf.function(function, autograph=False)
    compiled.get_concrete_function(*arguments)  # builds its graph, and runs nothing
    return lambda: compiled(*arguments)
