"""A training step whose variables lie on parameter servers, and which says how late its update came."""

import tensorflow as tf

from steptime.libraries.tensorflow.training_step import TensorFlowTraining


class CountedTraining(TensorFlowTraining):
    """Counts the updates of all workers in a variable of a server.

    The count is read with the weights and again behind this step's own update: what others added meanwhile is the
    staleness of the update.
    """

    use_locking = True

    def __init__(self, network, optimizer, extended, count):
        """Make the velocities.

        Args:
            network: a ``TensorFlowNetwork``.
            optimizer: of the job.
            extended: of the strategy whose scope is in force.
            count: the variable.
        """
        self._extended = extended
        self._count = count
        super(CountedTraining, self).__init__(network, optimizer)

    def _velocity(self, variable):
        with self._extended.colocate_vars_with(variable):
            return super(CountedTraining, self)._velocity(variable)

    def step(self, inputs, targets):
        """Train on one batch and return its loss before the update and the update's staleness, as one tensor."""
        pulled = self._count.read_value()
        loss, updates = self._train(inputs, targets)
        return tf.stack([loss, tf.cast(self._late(pulled, updates), tf.float32)])

    def exchange(self, gradients):
        """Do what a step does beside its computation: pull all weights, and push ``gradients``."""
        pulled = self._count.read_value()
        weights = [tf.identity(variable) for variable in self._variables]
        return self._late(pulled, self.update(gradients)), weights

    def _late(self, pulled, updates):
        with tf.control_dependencies(updates):
            return self._count.assign_add(1).read_value() - 1 - pulled
