"""What frameworks over MXNet give to their tests: batches, live weights, and faults in the gradients."""

from steptime.worker.contract import last_layer


def batches(job, context):
    """Return the batches of MXNet's loaders as numpy arrays."""
    import mxnet

    from steptime.libraries.mxnet.loader import open_mxnet_batches

    own = open_mxnet_batches(job, context, mxnet.cpu())
    return ((inputs.asnumpy(), targets.asnumpy()) for inputs, targets in own)


def weights(session):
    """Return the functions of the live weights of a session."""
    arrays = list(session._bound.weights.values())

    def put(given):
        for array, value in zip(arrays, given):
            array[:] = value

    return (lambda: [each.asnumpy() for each in arrays]), put


def freeze_last_layer(job, context):
    """Set the gradients of the last layer to zero."""
    if context.role != "worker":  # a server serves when it imports MXNet, once it has its role
        return
    names = last_layer(job)

    def zero(gradients):
        for name in names:
            gradients[name][:] = 0

    change_gradients(zero)


def change_gradients(change):
    """Have ``change`` called with this worker's gradients by name, before they are pushed."""
    from steptime.libraries.mxnet.network import BoundWorkload

    backpropagate = BoundWorkload.backpropagate

    def changed(self, *batch):
        backpropagate(self, *batch)
        change(self.gradients)

    BoundWorkload.backpropagate = changed
