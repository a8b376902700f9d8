"""What every strategy builds first: a worker's network, and the gradients of its loss."""

from steptime.worker.builders.tensorflow1 import GraphNetwork
from steptime.worker.weights import initial_weights


def network_of(job, where=None, kept_at=None):
    """Return the job's workload in the default graph; the devices are those of ``GraphNetwork``."""
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return GraphNetwork(job["workload"], weights, where, kept_at)


def gradients_of(tf1, job, network, batch, *, use_locking=False):
    """Return ``(loss, pairs, optimizer)``, where pairs are gradients of the loss with their variables.

    Args:
        tf1: TensorFlow.
        job: of the launch.
        network: a ``GraphNetwork``.
        batch: tensors of inputs and targets.
        use_locking: whether an update keeps others from the same variable while it is made.
    """
    settings = job["optimizer"]
    loss = network.loss(*batch)
    optimizer = tf1.train.MomentumOptimizer(
        settings["learning_rate"], settings["momentum"], use_locking=use_locking, use_nesterov=False
    )
    return loss, optimizer.compute_gradients(loss, network.variables), optimizer


def decayed(job, pairs):
    """Return gradients with their variables, and with what weight decay adds to them."""
    decay = job["optimizer"]["weight_decay"]
    return [(gradient + decay * variable, variable) for gradient, variable in pairs] if decay else pairs


def stages_of(network, loss, pairs):
    """Return what the stages before the update run: ``{"forward": fetches, "backward": fetches}``.

    Gradients are run and not fetched: what nobody asks for is not handed to Python.
    """
    forward = [loss] + network.running
    return {"forward": forward, "backward": forward + [gradient.op for gradient, _ in pairs]}
