"""The ablated step of a worker of ParameterServerStrategy, which its coordinator runs."""

import tensorflow as tf

from steptime.libraries.tensorflow.ablation import compile_on
from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.startup import collect_garbage
from steptime.libraries.tensorflow.training_step import TensorFlowTraining
from steptime.worker.ablated_step import AblatedStep
from steptime.worker.weights import initial_weights


class ServedAblation(AblatedStep):
    """The stages of the worker whose device is in force.

    The stages before the exchange have weights of their own, on the worker, so that they pull nothing. What is pushed
    without being computed is zeros, because the servers apply it.
    """

    def __init__(self, job, training, batches):
        """Take the job, the ``CountedTraining`` of all workers, and the batches of this worker."""
        self._job = job
        self._training = training
        self._batches = batches

    def stages(self):
        job = self._job
        weights = initial_weights(job["workload"]["layers"], job["seed"])
        network = TensorFlowNetwork(job["workload"], weights, job["precision"])
        own = TensorFlowTraining(network, job["optimizer"])
        take = self._batches.taker()
        held = take()
        zeros = [tf.zeros(variable.shape) for variable in network.variables]
        stages = {
            "forward": compile_on(own.forward, *held),
            "backward": compile_on(own.backward, *held),
            "exchange": compile_on(self._training.step, *held),
            "communication": compile_on(self._training.exchange, zeros),
            "input": take,
        }
        collect_garbage()
        return stages
