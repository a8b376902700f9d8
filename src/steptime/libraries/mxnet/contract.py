"""What frameworks over MXNet give to their tests: batches, live weights, and faults in the gradients."""

from typing import Any, Callable, Dict, Iterator, List, Tuple

from steptime.worker.framework import last_layer
from steptime.worker.process_context import Job, ProcessContext


def batches(job: Job, context: ProcessContext) -> Iterator[Tuple[Any, Any]]:
    """Return the batches of MXNet's loaders as numpy arrays."""
    import mxnet

    from steptime.libraries.mxnet.loader import open_mxnet_batches

    own = open_mxnet_batches(job, context, mxnet.cpu())
    return ((inputs.asnumpy(), targets.asnumpy()) for inputs, targets in own)


def weights(session: Any) -> Tuple[Callable[[], List[Any]], Callable[[List[Any]], None]]:
    """Return the functions of the live weights of a session."""
    arrays = list(session._bound.weights.values())

    def put(given: Any) -> None:
        for array, value in zip(arrays, given):
            array[:] = value

    return (lambda: [each.asnumpy() for each in arrays]), put


def freeze_last_layer(job: Job, context: ProcessContext) -> None:
    """Set the gradients of the last layer to zero."""
    if context.role != "worker":  # a server serves when it imports MXNet, once it has its role
        return
    names = last_layer(job)

    def zero(gradients: Any) -> None:
        for name in names:
            gradients[name][:] = 0

    change_gradients(zero)


def change_gradients(change: Callable[[Dict[str, Any]], Any]) -> None:
    """Have ``change`` called with this worker's gradients by name, before they are pushed."""
    from steptime.libraries.mxnet.network import BoundWorkload

    backpropagate = BoundWorkload.backpropagate

    def changed(self: Any, *batch: Any) -> None:
        backpropagate(self, *batch)
        change(self.gradients)

    planted: Any = changed
    BoundWorkload.backpropagate = planted
