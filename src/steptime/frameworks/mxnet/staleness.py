"""The staleness of asynchronous updates: one more array on the servers, which counts instead of being trained.

A worker pushes to the counter in every step and gets its new value back. Between two of its own pushes the counter
has moved by one for itself and by one for each update of another worker.
"""

from mxnet.optimizer import SGD


class CountingSGD(SGD):
    """The optimizer that runs on the servers, which unpickle it and find this class in their copy of this module."""

    def __init__(self, counter, **settings):
        """``counter`` is the key of the array that counts; its gradients do not matter."""
        super(CountingSGD, self).__init__(**settings)
        self._counter = counter

    def create_state_multi_precision(self, index, weight):
        return None if index == self._counter else super(CountingSGD, self).create_state_multi_precision(index, weight)

    def update_multi_precision(self, index, weight, gradient, state):
        # A server hands over one array at a time, alone or as the only one of a tuple.
        if index == self._counter:
            weight += 1
        elif index == (self._counter,):
            weight[0][:] += 1
        else:
            super(CountingSGD, self).update_multi_precision(index, weight, gradient, state)


class UpdateCounter(object):
    """This worker's side of the counter."""

    def __init__(self, mxnet, store, key, gradients):
        """Make the counter in ``store`` under ``key``; ``gradients`` are those that are pushed in every step.

        The smallest of them is pushed to the counter as well: what counts is that the push waits for the backward
        pass, as those of the gradients do.
        """
        self._empty = mxnet.nd.empty
        self._store = store
        self._key = key
        self._gradient = min(gradients, key=lambda gradient: gradient.size)
        store.init(key, mxnet.nd.zeros(self._gradient.shape))
        self._last = 0
        self._values = []

    def step(self):
        """Count this worker's update, without waiting for the answer."""
        value = self._empty(self._gradient.shape)
        self._store.pushpull(self._key, self._gradient, out=value)
        self._values.append(value)

    def counts(self):
        """Return ``{staleness: count}`` of the updates since the last call; waits for them."""
        found = {}
        for value in self._values:
            count = int(value.reshape(-1)[0].asscalar())
            late = count - self._last - 1
            found[late] = found.get(late, 0) + 1
            self._last = count
        self._values = []
        return found
