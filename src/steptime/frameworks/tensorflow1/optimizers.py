"""The optimizers of TensorFlow 1 under the names of a study, and a learning rate that a graph can change.

Adam adds epsilon to the root of the second moment as it is, and has the learning rate corrected for the moments' start
at zero. Neither optimizer knows of weight decay, which is added to the gradients.
"""


def open_optimizer(tf1, settings, rate, *, use_locking):
    """Return TensorFlow's optimizer of the job's ``optimizer`` settings.

    Args:
        tf1: TensorFlow.
        settings: of the job's ``optimizer``.
        rate: a number, or a callable that returns a tensor when the update is built.
        use_locking: whether an update keeps others from the same variable while it is made.
    """
    if settings["name"] == "adam":
        return tf1.train.AdamOptimizer(
            rate, settings["beta1"], settings["beta2"], settings["epsilon"], use_locking=use_locking
        )
    nesterov = settings["name"] == "nesterov"
    return tf1.train.MomentumOptimizer(rate, settings["momentum"], use_locking=use_locking, use_nesterov=nesterov)


def decayed(settings, pairs):
    """Return gradients with their variables, and with what weight decay adds to them."""
    decay = settings["weight_decay"]
    return [(gradient + decay * variable, variable) for gradient, variable in pairs] if decay else pairs


class GraphRate(object):
    """The learning rate of one worker, a variable on the worker; called when an update is built.

    ``after``
        Tensors that must be there before an update that is built now reads the rate.
    """

    def __init__(self, tf1, rate):
        self._tf1 = tf1
        self.after = []
        self._variable = tf1.Variable(
            rate, trainable=False, collections=[tf1.GraphKeys.LOCAL_VARIABLES], use_resource=True, dtype=tf1.float32
        )
        self._fed = tf1.placeholder(tf1.float32, ())
        self._assignment = self._variable.assign(self._fed).op

    def __call__(self):
        with self._tf1.control_dependencies(self.after):
            return self._variable.read_value()

    def set_in(self, session, rate):
        """Have the updates that ``session`` begins from now on use another rate."""
        session.run(self._assignment, {self._fed: rate})
