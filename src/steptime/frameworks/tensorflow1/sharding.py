"""Which server holds which weights: what ``tf.train.replica_device_setter`` asks for each variable."""


class Balanced(object):
    """Each variable goes to the server that holds the fewest bytes so far.

    The rule of ``tf.contrib.training.GreedyLoadBalancingStrategy``, which later TensorFlows do not have, and whose
    usual load function takes a variable that is a resource for as large as its handle.
    """

    def __init__(self, servers):
        self._loads = [0] * servers

    def __call__(self, op):
        """Return the server for the variable that ``op`` makes."""
        server = self._loads.index(min(self._loads))
        size = op.get_attr("dtype").size
        for axis in op.get_attr("shape").dim:
            size *= axis.size
        self._loads[server] += size
        return server


def device_setter(tf1, sharding, cluster, worker_device):
    """Return the device function for the variables of one worker.

    Args:
        tf1: TensorFlow.
        sharding: ``round_robin`` or ``balanced``.
        cluster: ``{"ps": addresses, "worker": addresses}``.
        worker_device: of the worker, where all that is no variable goes.
    """
    chosen = Balanced(len(cluster["ps"])) if sharding == "balanced" else None  # round robin is TensorFlow's own
    return tf1.train.replica_device_setter(cluster=cluster, worker_device=worker_device, ps_strategy=chosen)


def bytes_by_server(variables, servers):
    """Return how many bytes of weights each server holds, as a list."""
    held = [0] * servers
    for variable in variables:
        held[int(variable.device.rsplit("task:", 1)[1].split("/")[0])] += variable.shape.num_elements() * 4
    return held
