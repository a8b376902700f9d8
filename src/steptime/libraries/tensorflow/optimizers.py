"""The optimizers of TensorFlow as one kernel for each variable, which Keras's own come to on a graph.

Adam adds epsilon to the root of the second moment as it is, and has the learning rate corrected for the moments' start
at zero, as Kingma and Ba write the quicker form, and as Keras does. AdamW first takes decay times the learning rate
off the weights.
"""

import tensorflow as tf

from steptime.worker.weights import is_decayed


def open_optimizer(settings, variables, slot, *, use_locking):
    """Return the optimizer of the job's ``settings`` over ``variables``.

    Args:
        settings: of the job's ``optimizer``.
        variables: to be trained, in the order in which their gradients will come.
        slot: ``(variable, name)`` returns a new variable of zeros, of the shape of that one and where that one lies.
        use_locking: whether an update keeps others from the same variable while it is made.
    """
    return _OPTIMIZERS[settings["name"]](settings, variables, slot, use_locking)


class _TensorFlowOptimizer(object):
    """What all have.

    ``kept``
        ``{name: variable}`` of all that updates depend on, but for the weights.
    """

    def __init__(self, settings, variables, use_locking):
        self._settings = settings
        self._variables = variables
        self._locks = {"use_locking": use_locking}
        self.kept = {}

    def _slots(self, slot, name):
        slots = [slot(variable, name) for variable in self._variables]
        self.kept.update({"%s.%d" % (name, place): variable for place, variable in enumerate(slots)})
        return slots

    def _decayed(self, gradients):
        decay = self._settings["weight_decay"]
        if not decay:
            return gradients
        return [
            gradient + decay * variable if self._is_decayed(variable) else gradient
            for gradient, variable in zip(gradients, self._variables)
        ]

    def _is_decayed(self, variable):
        return is_decayed(self._settings, len(variable.shape))

    def update(self, gradients, rate):
        """Change the variables by their gradients with the learning rate ``rate``; return the operations that do it."""
        raise NotImplementedError


class Momentum(_TensorFlowOptimizer):
    """Stochastic gradient descent with momentum, or Nesterov's."""

    def __init__(self, settings, variables, slot, use_locking):
        super(Momentum, self).__init__(settings, variables, use_locking)
        self._nesterov = settings["name"] == "nesterov"
        self._velocities = self._slots(slot, "velocity")

    def update(self, gradients, rate):
        # The velocity becomes momentum * velocity + grad, of which lr times is taken off the variable.
        return [
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=rate,
                grad=gradient,
                momentum=self._settings["momentum"],
                use_nesterov=self._nesterov,
                **self._locks,
            )
            for variable, velocity, gradient in zip(self._variables, self._velocities, self._decayed(gradients))
        ]


class Adam(_TensorFlowOptimizer):
    """Adam, or AdamW, whose decay is not part of the gradient."""

    def __init__(self, settings, variables, slot, use_locking):
        super(Adam, self).__init__(settings, variables, use_locking)
        self._decoupled = settings["weight_decay"] if settings["name"] == "adamw" else 0.0
        self._first, self._second = self._slots(slot, "first"), self._slots(slot, "second")
        self._steps = self.kept["steps"] = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")

    def update(self, gradients, rate):
        settings = self._settings
        gradients = gradients if self._decoupled else self._decayed(gradients)
        # By its handle: strategies would have a say in an assignment, and every replica counts for itself.
        counted = tf.raw_ops.AssignAddVariableOp(resource=self._steps.handle, value=tf.constant(1, tf.int64))
        with tf.control_dependencies([counted] if counted is not None else []):
            steps = tf.raw_ops.ReadVariableOp(resource=self._steps.handle, dtype=tf.int64)
        steps = tf.cast(steps, self._variables[0].dtype)
        powers = {
            "beta1_power": tf.pow(settings["beta1"], steps),
            "beta2_power": tf.pow(settings["beta2"], steps),
        }
        updates = []
        for variable, first, second, gradient in zip(self._variables, self._first, self._second, gradients):
            with tf.control_dependencies(self._decay(variable, rate)):
                updates.append(
                    tf.raw_ops.ResourceApplyAdam(
                        var=variable.handle,
                        m=first.handle,
                        v=second.handle,
                        lr=rate,
                        beta1=settings["beta1"],
                        beta2=settings["beta2"],
                        epsilon=settings["epsilon"],
                        grad=gradient,
                        **dict(powers, **self._locks),
                    )
                )
        return updates

    def _decay(self, variable, rate):
        """Return the operation, in a list, that takes the decay off a variable."""
        if not (self._decoupled and self._is_decayed(variable)):
            return []
        lost = tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=rate * self._decoupled * variable)
        return [] if lost is None else [lost]


_OPTIMIZERS = {"sgd": Momentum, "nesterov": Momentum, "adam": Adam, "adamw": Adam}
