"""The server: it holds a piece of the weights and updates it with the gradients that workers send."""

import threading

import torch
from torch.distributed import rpc

from steptime.frameworks.pytorch.pieces import Pieces
from steptime.frameworks.pytorch.remote import Meeting
from steptime.worker.sessions.torch_strategy import channels_innermost, sgd
from steptime.worker.weights import initial_weights

_held = {}
"""Under ``piece``: what this process holds; calls from outside find nothing but a module's own names."""


def serve_piece(job, place):
    """Be one server until all workers have left."""
    torch.set_num_threads(job["threads"])
    torch.set_num_interop_threads(1)
    kind = {"ps_sync": AgreedPiece, "ps_async": FreePiece}[job["strategy"]]
    _held["piece"] = kind(_first_weights(job, place), job["optimizer"], place.workers)
    # Nobody can call before everybody is here, so that no gradient comes to a server without weights.
    Meeting(place).leave()


@rpc.functions.async_execution
def exchange(worker, gradient):
    """Called by workers: give this server a gradient, and get a future of ``(weights, staleness)``.

    Args:
        worker: the caller's rank.
        gradient: float32, as long as the piece; the server keeps it.
    """
    return _held["piece"].take(worker, gradient)


def _first_weights(job, place):
    """The workers compute the same, and need not be asked."""
    layers = job["workload"]["layers"]
    pieces = Pieces(layers, place.servers, job["options"]["sharding"], channels_innermost(job))
    row = torch.empty(pieces.sizes[place.rank])
    weights = initial_weights(layers, job["seed"])
    for name, view in pieces.views(place.rank, row).items():
        view.copy_(torch.from_numpy(weights[name]))
    return row


class AgreedPiece(object):
    """Updated once with the gradients of all workers; everybody waits for the last of them."""

    def __init__(self, weights, optimizer, workers):
        """Hold ``weights``, a row of float32, and update them by the job's ``optimizer`` settings."""
        # The sum of the gradients stands for their average. As all is linear in it, the learning rate and the decay
        # can do the division, which would otherwise be one more pass over all values.
        settings = dict(
            optimizer,
            learning_rate=optimizer["learning_rate"] / workers,
            weight_decay=optimizer["weight_decay"] * workers,
        )
        self._weights = weights
        self._optimizer = sgd([weights], settings, "fused")
        self._workers = workers
        self._lock = threading.Lock()
        self._sum = None
        self._waiting = []

    def take(self, _, gradient):
        """Add a worker's gradient; its future is fulfilled when the last worker's has come."""
        future = torch.futures.Future()
        with self._lock:
            self._sum = gradient if self._sum is None else self._sum.add_(gradient)
            self._waiting.append(future)
            if len(self._waiting) < self._workers:
                return future
            waiting, self._waiting = self._waiting, []
            self._weights.grad, self._sum = self._sum, None
            self._optimizer.step()
            self._weights.grad = None
        # These weights change no more before each worker has them, since each has to send its next gradient first.
        for each in waiting:
            each.set_result((self._weights, 0))
        return future


class FreePiece(object):
    """Updated with each gradient at once, whatever the other workers do."""

    def __init__(self, weights, optimizer, workers):
        """As ``AgreedPiece`` does."""
        self._weights = weights
        self._optimizer = sgd([weights], optimizer, "fused")
        self._lock = threading.Lock()
        self._version = 0
        self._pulled = [0] * workers

    def take(self, worker, gradient):
        """Update; the staleness is how many updates came after those weights that the worker got last."""
        future = torch.futures.Future()
        with self._lock:
            late = self._version - self._pulled[worker]
            self._weights.grad = gradient
            self._optimizer.step()
            self._weights.grad = None
            self._version += 1
            self._pulled[worker] = self._version
            weights = self._weights.clone()  # the next update must not change what is on its way
        future.set_result((weights, late))
        return future
