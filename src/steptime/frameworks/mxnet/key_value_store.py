"""The processes of MXNet's key-value store, and the updates that its servers make."""

import os

from steptime.frameworks.mxnet.communication import priority_of
from steptime.libraries.mxnet.startup import set_environment

_abandoned = []
"""Stores that must not be freed, for MXNet leaves a store when it frees it."""


def set_role(job, context):
    """Write into the environment who this process is and how it computes.

    To be called before MXNet is imported, which reads it once. Workers of the strategy ``single`` get no role.
    """
    set_environment(job)
    if job["strategy"] == "single":
        return
    os.environ.update(
        DMLC_ROLE=context.role,
        DMLC_PS_ROOT_URI=context.root_host,
        DMLC_PS_ROOT_PORT=str(context.root_port),
        DMLC_NUM_SERVER=str(context.servers),
        DMLC_NUM_WORKER=str(context.workers),
        DMLC_INTERFACE=context.interface,
        MXNET_KVSTORE_BIGARRAY_BOUND=str(job["options"]["bigarray_bound"]),
    )
    addresses = {"worker": context.worker_addresses, "server": context.server_addresses}.get(context.role)
    if addresses:
        host, port = addresses[context.rank].rsplit(":", 1)
        os.environ.update(DMLC_NODE_HOST=host, PORT=port)


def keep_store_alive(store):
    """Keep ``store`` from being freed before this process dies."""
    _abandoned.append(store)


def run_role():
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
    weights now and then (see the README of this folder).
    """

    updates_here = False

    def __init__(self, mxnet, kind, settings, bound):
        """Enter the store and agree on the first weights.

        Args:
            mxnet: the library.
            kind: ``dist_sync`` or ``dist_async``.
            settings: of ``mxnet.optimizer.SGD``.
            bound: the ``BoundWorkload`` whose weights are kept by the servers.
        """
        from steptime.frameworks.mxnet.staleness import CountingSGD, UpdateCounter

        self._zeros = mxnet.nd.zeros
        self._weights = bound.weights
        self.arriving = list(bound.weights.values())
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
        self._lateness = counter and UpdateCounter(mxnet, self._store, counter, list(bound.gradients.values()))
        self.facts = {"kvstore": kind, "updated_by": "server"}

    def step(self):
        """Start all that turns gradients into new weights."""
        self.exchange()

    def exchange(self):
        """Start the exchange of all gradients for new weights; layers that are used first go first."""
        for key, (gradient, weight) in enumerate(self._pairs):
            self._store.pushpull(key, gradient, out=weight, priority=priority_of(key))
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
        keep_store_alive(self._store)
