"""MXNet's key-value store: the updates that its servers make, their staleness, and messages as it carries gradients.

MXNet reads its environment when this module is imported; ``adapter.py`` sets it before.
"""

import functools
import itertools
from typing import Any, Dict, List

import mxnet

from steptime.frameworks.mxnet.communication import priority_of
from steptime.libraries.mxnet.optimizers import clip
from steptime.worker.framework import FED, BackEnd, Message

_abandoned: List[Any] = []
"""Stores that must not be freed, for MXNet leaves a store when it frees it."""


def keep_store_alive(store):
    """Keep ``store`` from being freed before this process dies."""
    _abandoned.append(store)


def compression(options):
    """Return the setting of ``set_gradient_compression`` that the job's options ask for; None for none."""
    if options["compression"] == "none":
        return None
    return {"type": options["compression"], "threshold": options["compression_threshold"]}


_served: Dict[Any, Any] = {}
"""In a server: its ``ServedOptimizer``, under ``optimizer``."""


class ServedOptimizer(mxnet.optimizer.Optimizer):
    """The optimizer of a server, whose rate can change while its state is kept.

    A server runs whatever optimizer a worker sends, with a new and empty state each time. This one keeps the state
    itself, so that a ``RateChange`` sent as an optimizer leaves it as it is. Servers unpickle it and find this class
    in their copy of this module.
    """

    def __init__(self, optimizer, counter=None):
        """Take an optimizer.

        Args:
            optimizer: of ``mxnet.optimizer``.
            counter: the key of one more array, which counts the updates instead of being trained; None for none.
        """
        super(ServedOptimizer, self).__init__()
        self.aggregate_num = optimizer.aggregate_num
        self._optimizer = optimizer
        self._counter = counter
        self._states = {}

    def __setstate__(self, state):
        super(ServedOptimizer, self).__setstate__(state)
        _served["optimizer"] = self

    def set_learning_rate(self, rate):
        self._optimizer.set_learning_rate(rate)

    def create_state_multi_precision(self, index, weight):
        if index == self._counter:
            return None
        if index not in self._states:
            self._states[index] = self._optimizer.create_state_multi_precision(index, weight)
        return self._states[index]

    def update_multi_precision(self, index, weight, gradient, state):
        # A server hands over one array at a time, alone or as the only one of a tuple.
        if self._counter is not None and index in {self._counter, (self._counter,)}:
            array = weight[0] if isinstance(index, tuple) else weight
            array += 1
        else:
            self._optimizer.update_multi_precision(index, weight, gradient, state)


class RateChange(object):
    """Becomes the server's own ``ServedOptimizer``, with another rate, where a server unpickles it.

    To be sent by ``set_optimizer``, MXNet's only message from a worker to what runs in a server's Python.
    """

    multi_precision = False

    def __init__(self, rate):
        self._rate = rate

    def __reduce__(self):
        return _changed, (self._rate,)


def _changed(rate):
    """Return this server's optimizer, with the learning rate ``rate`` from now on."""
    _served["optimizer"].set_learning_rate(rate)
    return _served["optimizer"]


class UpdateCounter(object):
    """The staleness of this worker's asynchronous updates.

    The worker pushes to the counter of ``ServedOptimizer`` in every step and gets its new value back. Between two of
    its own pushes the counter has moved by one for itself and by one for each update of another worker.
    """

    def __init__(self, store, key, gradients, exchange):
        """Make the counter in ``store`` under ``key``; ``gradients`` are those that are pushed in every step.

        ``exchange`` pushes a gradient and pulls a weight, as ``ServerUpdate`` does.

        The smallest of them is pushed to the counter as well: what counts is that the push waits for the backward
        pass, as those of the gradients do.
        """
        self._exchange = exchange
        self._key = key
        self._gradient = min(gradients, key=lambda gradient: gradient.size)
        store.init(key, mxnet.nd.zeros(self._gradient.shape))
        self._last = 0
        self._values = []

    def step(self):
        """Count this worker's update, without waiting for the answer."""
        value = mxnet.nd.empty(self._gradient.shape)
        self._exchange(self._key, self._gradient, value, 0)
        self._values.append(value)

    def counts(self):
        """Return ``{staleness: count}`` of the updates since the last call; waits for them."""
        found: Dict[Any, Any] = {}
        for value in self._values:
            count = int(value.reshape(-1)[0].asscalar())
            late = count - self._last - 1
            found[late] = found.get(late, 0) + 1
            self._last = count
        self._values = []
        return found


class ServerUpdate(object):
    """Gradients go to the servers, which update the weights; the new weights come back.

    The servers add up what the workers push. In synchronous mode they wait for all workers and update once with the
    sum; in asynchronous mode they update at once with each push. The optimizer object that each server runs is sent
    from here. MXNet's other way, in which the servers only add and the workers update, is not used: it gives wrong
    weights now and then (see the README of this folder).
    """

    updates_here = False

    def __init__(self, kind, optimizer, bound, compressed):
        """Enter the store and agree on the first weights.

        Args:
            kind: of MXNet's stores.
            optimizer: of ``mxnet.optimizer``.
            bound: the ``BoundWorkload`` whose weights are kept by the servers.
            compressed: what ``compression`` returns.
        """
        self._weights = bound.weights
        self.arriving = list(bound.weights.values())
        self._pairs = [(bound.gradients[name], weight) for name, weight in bound.weights.items()]
        self._store = mxnet.kv.create(kind)
        self._compressed = compressed
        if compressed:
            self._store.set_gradient_compression(compressed)
        # Before the weights, whose arrival all workers await: no gradient can come to a server without optimizer,
        # and no late optimizer can replace one that has momentum already.
        counter = len(self._pairs) if "async" in kind else None
        self._store.set_optimizer(ServedOptimizer(optimizer, counter))
        self._rate = optimizer.learning_rate
        self._clip = functools.partial(clip, list(bound.gradients.values()), optimizer)
        for key, (_, weight) in enumerate(self._pairs):
            self._store.init(key, weight)
        gradients = list(bound.gradients.values())
        self._lateness = counter and UpdateCounter(self._store, counter, gradients, self._push_and_pull)
        self.facts = {
            "kvstore": self._store.type,
            "updated_by": "server",
            "compression": compressed["type"] if compressed else "none",
        }

    def step(self):
        """Start all that turns gradients into new weights."""
        self.exchange()

    def exchange(self):
        """Start the exchange of all gradients, clipped, for new weights; layers that are used first go first."""
        self._clip()
        for key, (gradient, weight) in enumerate(self._pairs):
            self._push_and_pull(key, gradient, weight, priority_of(key))
        if self._lateness:
            self._lateness.step()

    def _push_and_pull(self, key, gradient, weight, priority):
        if self._compressed:  # MXNet refuses to do both at once with compressed gradients
            self._store.push(key, gradient, priority=priority)
            self._store.pull(key, out=weight, priority=priority)
        else:
            self._store.pushpull(key, gradient, out=weight, priority=priority)

    def set_learning_rate(self, rate):
        """Have the servers update with another rate from this worker's next step on.

        The message overtakes what the engine has not sent yet, so that this worker's last step must be over. Where all
        workers update together, the first one speaks for all: no update is made without its next gradients.
        """
        if rate == self._rate:
            return
        self._rate = rate
        mxnet.nd.waitall()
        if self._lateness or self._store.rank == 0:
            self._store.set_optimizer(RateChange(rate))

    def state(self):
        """Return None: no message of MXNet's brings the optimizer's state back from a server."""

    def staleness(self):
        """Return ``{staleness: count}`` since the last call; None if all workers update together."""
        return self._lateness.counts() if self._lateness else None

    def stored_weights(self):
        """Return ``{name: NDArray}`` as the servers hold them."""
        pulled = {}
        for key, (name, weight) in enumerate(self._weights.items()):
            pulled[name] = mxnet.nd.zeros(weight.shape, ctx=weight.context)
            self._store.pull(key, out=pulled[name])
        return pulled

    def close(self):
        """Leave the store: wait for the other workers, then let the servers and the scheduler end."""
        self._lateness = None
        self._store = None

    def abandon(self):
        """Stay in the store until this process dies: leaving waits for the others, who may wait for this worker."""
        keep_store_alive(self._store)


class KeyValuePushPull(Message):
    """A gradient under a key, and the weight that comes back.

    MXNet pulls into the memory that it pushed from before it copies into the weight: what was a gradient is the
    weight afterwards. Training does not read it, since the next backward pass writes a new one.
    """

    becomes = FED

    def __init__(self, back_end, count):
        self._store, self._key = back_end.store, back_end.next_key()
        self._gradient, self._weight = mxnet.nd.zeros(count), mxnet.nd.zeros(count)
        self._store.init(self._key, self._weight)

    def fill(self, values):
        self._gradient[:] = values
        self._gradient.wait_to_read()

    def run(self):
        self._store.pushpull(self._key, self._gradient, out=self._weight)
        self._weight.wait_to_read()

    def result(self):
        return self._weight.asnumpy()


class KeyValueStoreBackEnd(BackEnd):
    """One worker in the store ``dist_sync``, whose servers update as they do in training, but without momentum."""

    messages = {"push_pull": KeyValuePushPull}

    def __init__(self):
        self.store = mxnet.kv.create("dist_sync")
        # The decay takes all of the weight away, and what the step takes away is the sum with its sign turned: the
        # weight becomes the sum of all pushes.
        self.store.set_optimizer(mxnet.optimizer.SGD(learning_rate=1.0, rescale_grad=-1.0, wd=1.0))
        self.next_key = functools.partial(next, itertools.count(1))

    def facts(self):
        return {"framework_version": mxnet.__version__, "kvstore": "dist_sync"}

    def close(self):
        self.store = None

    def abort(self):
        """Stay in the store until this process dies: leaving waits for the others."""
        keep_store_alive(self.store)
