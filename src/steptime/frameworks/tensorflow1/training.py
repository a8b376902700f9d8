"""What every strategy builds first: a worker's network, and the gradients of its loss."""

from steptime.worker.builders.tensorflow1 import GraphNetwork
from steptime.worker.weights import initial_weights


def network_of(job, where=None, kept_at=None):
    """Return the job's workload in the default graph; the devices are those of ``GraphNetwork``."""
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return GraphNetwork(job["workload"], weights, where, kept_at)


def gradients_of(tf1, job, network, batch, *, use_locking=False):
    """Return ``(loss, pairs, optimizer)``, where pairs are gradients with their variables.

    Args:
        tf1: TensorFlow.
        job: of the launch.
        network: a ``GraphNetwork``.
        batch: tensors of inputs and targets.
        use_locking: whether an update keeps others from the same variable while it is made.
    """
    settings = job["optimizer"]
    inputs, targets = batch
    if job["workload"]["loss"] == "mean_squared_error":
        targets = inputs
    loss = network.loss(inputs, targets)
    optimizer = tf1.train.MomentumOptimizer(
        settings["learning_rate"], settings["momentum"], use_locking=use_locking, use_nesterov=False
    )
    pairs = optimizer.compute_gradients(loss, network.variables)
    if settings["weight_decay"]:
        pairs = [(gradient + settings["weight_decay"] * variable, variable) for gradient, variable in pairs]
    return loss, pairs, optimizer
