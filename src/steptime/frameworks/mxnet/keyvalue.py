"""The processes of MXNet's key-value store, and the updates that its servers make."""

import os

_abandoned = []
"""Stores that must not be freed, for MXNet leaves a store when it frees it."""


def settle_environment(job, place):
    """Write into the environment who this process is and how it computes.

    To be called before MXNet is imported, which reads it once. Workers of the strategy ``single`` get no role.
    """
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    for name in [name for name in os.environ if name.startswith("DMLC_")]:
        del os.environ[name]  # a role left by the user's shell would turn this process into a server
    if job["strategy"] == "single":
        return
    os.environ.update(
        DMLC_ROLE=place.role,
        DMLC_PS_ROOT_URI=place.root_host,
        DMLC_PS_ROOT_PORT=str(place.root_port),
        DMLC_NUM_SERVER=str(place.servers),
        DMLC_NUM_WORKER=str(place.workers),
        DMLC_INTERFACE=place.interface,
        MXNET_KVSTORE_BIGARRAY_BOUND=str(job["options"]["bigarray_bound"]),
    )
    addresses = {"worker": place.worker_addresses, "server": place.server_addresses}.get(place.role)
    if addresses:
        host, port = addresses[place.rank].rsplit(":", 1)
        os.environ.update(DMLC_NODE_HOST=host, PORT=port)


def play_role():
    """Be the server or the scheduler that the environment names, until the last worker has left."""
    try:
        import mxnet  # noqa: F401 - the import itself serves, and leaves by SystemExit
    except SystemExit as ending:
        if ending.code:
            raise RuntimeError("the key-value store ended with code %s" % ending.code) from ending


class ServerUpdate(object):
    """Gradients go to the servers, which update the weights; the new weights come back.

    The servers add up what the workers push. In synchronous mode they wait for all workers and update once with the
    sum; in asynchronous mode they update at once with each push. The optimizer object that each server runs is sent
    from here. MXNet's other way, in which the servers only add and the workers update, is not used: it gives wrong
    weights now and then (see the room's README).
    """

    def __init__(self, mxnet, kind, settings, bound):
        """Enter the store and agree on the first weights.

        Args:
            mxnet: the library.
            kind: ``dist_sync`` or ``dist_async``.
            settings: of ``mxnet.optimizer.SGD``.
            bound: the ``BoundWorkload`` whose weights are kept by the servers.
        """
        from steptime.frameworks.mxnet.counting import CountingSGD, Lateness

        self._zeros = mxnet.nd.zeros
        self._weights = bound.weights
        self._pairs = [(bound.gradients[name], weight) for name, weight in bound.weights.items()]
        self._store = mxnet.kv.create(kind)
        # Before the weights, whose arrival all workers await: no gradient can come to a server without optimizer,
        # and no late optimizer can replace one that has momentum already.
        counter = len(self._pairs) if kind == "dist_async" else None
        self._store.set_optimizer(
            mxnet.optimizer.SGD(**settings) if counter is None else CountingSGD(counter, **settings)
        )
        for key, (_, weight) in enumerate(self._pairs):
            self._store.init(key, weight)
        self._lateness = counter and Lateness(mxnet, self._store, counter, list(bound.gradients.values()))
        self.facts = {"kvstore": kind, "updated_by": "server"}

    def step(self):
        """Start the exchange of all gradients for new weights; layers that are used first go first."""
        for key, (gradient, weight) in enumerate(self._pairs):
            self._store.pushpull(key, gradient, out=weight, priority=-key)
        if self._lateness:
            self._lateness.step()

    def staleness(self):
        """Return ``{staleness: count}`` since the last call; None where all workers update together."""
        return self._lateness.counts() if self._lateness else None

    def stored_weights(self):
        """Return ``{name: NDArray}`` as the servers hold them."""
        pulled = {}
        for key, (name, weight) in enumerate(self._weights.items()):
            pulled[name] = self._zeros(weight.shape, ctx=weight.context)
            self._store.pull(key, out=pulled[name])
        return pulled

    def close(self):
        """Leave the store: wait for the other workers, then let the servers and the scheduler end."""
        self._lateness = None
        self._store = None

    def abandon(self):
        """Stay in the store until this process dies: leaving waits for the others, who may wait for this worker."""
        _abandoned.append(self._store)


class OwnUpdate(object):
    """This process updates its own weights."""

    def __init__(self, mxnet, settings, bound):
        """Take the settings of ``mxnet.optimizer.SGD`` and the ``BoundWorkload`` to update."""
        optimizer = mxnet.optimizer.SGD(**settings)
        self._weights = bound.weights
        self._arrays = list(bound.weights.values())
        self._gradients = list(bound.gradients.values())
        optimizer.aggregate_num = _group_size(self._arrays)
        self._update = mxnet.optimizer.get_updater(optimizer)
        self.facts = {"updated_by": "worker", "arrays_per_update": optimizer.aggregate_num}

    def step(self):
        """Start the update of all weights."""
        # The updater rewrites the list of keys that it is given.
        self._update(list(range(len(self._arrays))), self._gradients, self._arrays)

    def staleness(self):
        """Nobody else updates."""

    def stored_weights(self):
        """Return ``{name: NDArray}``."""
        return self._weights

    def close(self):
        """Nothing is held."""

    def abandon(self):
        """Nothing is held."""


_SMALL_ARRAY = 10000
_ARRAYS_PER_UPDATE = 4


def _group_size(arrays):
    """How many arrays one call of the optimizer updates.

    Grouping saves calls, which counts where arrays are small, but the grouped kernel walks its arrays abreast and
    takes 1.7 times as long as one array after the other where they are large (ResNet-50 on one core).
    """
    mean = sum(array.size for array in arrays) / float(len(arrays))
    return _ARRAYS_PER_UPDATE if mean < _SMALL_ARRAY else 1
