"""One training step of a TensorFlow workload: loss, gradients, and the update by momentum."""

import tensorflow as tf


class TensorFlowTraining(object):
    """A workload with its optimizer; ``step`` is what a strategy compiles and runs.

    The velocities are made in the constructor, under whatever strategy's scope is then in force.
    """

    use_locking = False
    """Whether an update keeps others from the same variable while it is made."""

    def __init__(self, network, optimizer, combine=None, share=1.0):
        """Make the velocities.

        Args:
            network: a ``TensorFlowNetwork``.
            optimizer: of the job.
            combine: a callable from a list of this worker's gradients to those of all workers; None keeps them.
            share: a factor on the loss that is differentiated; 1 / workers where ``combine`` sums, since dividing one
                number is cheaper than dividing all gradients.
        """
        self._network = network
        self._variables = network.variables
        self._optimizer = optimizer
        self._combine = combine
        self._share = share
        self._velocities = [self._velocity(variable) for variable in self._variables]

    def _velocity(self, variable):
        """Return the velocity of a variable, which must lie where the variable does."""
        return tf.Variable(tf.zeros(variable.shape), trainable=False, name="velocity")

    def step(self, inputs, targets):
        """Train on one batch and return its loss before the update."""
        loss, _ = self._train(inputs, targets)
        return loss

    def _train(self, inputs, targets):
        """Train on one batch; return its loss before the update, and the operations that update."""
        with tf.GradientTape() as tape:
            loss = self._network.loss(inputs, targets)
            shared = loss if self._share == 1.0 else loss * self._share
        gradients = tape.gradient(shared, self._variables)
        if self._combine is not None:
            gradients = self._combine(gradients)
        settings = self._optimizer
        decay = settings["weight_decay"]
        # One kernel: the velocity becomes momentum * velocity + grad, of which lr times is taken off the variable.
        updates = [
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=settings["learning_rate"],
                grad=gradient + decay * variable if decay else gradient,
                momentum=settings["momentum"],
                use_locking=self.use_locking,
            )
            for variable, velocity, gradient in zip(self._variables, self._velocities, gradients)
        ]
        return loss, updates
