"""What both strategies with servers share: weights live on servers, and worker 0 gives them their first values."""

from steptime.frameworks.tensorflow1 import cluster
from steptime.frameworks.tensorflow1.sharding import bytes_by_server, device_setter
from steptime.frameworks.tensorflow1.training import decayed, gradients_of, network_of, stages_of


class Served(object):
    """A worker's own graph ("between-graph replication"), in which only the weights are everybody's.

    ``stages`` and ``communication`` are for ``rungs.py``. The stages before the exchange are those of a second
    network, whose weights are the worker's own.
    """

    asynchronous = False
    """Whether the second result of a step is the staleness of its update."""
    stages = None
    communication = None

    def __init__(self, tf1, job, place, open_batches):
        """Build the graph; ``open_batches`` returns this worker's batches, whose tensors lie in the graph."""
        self._tf1 = tf1
        self._place = place
        self._target, self._settings = cluster.enter(tf1, place, job)
        mine = cluster.worker_device(place.rank)
        with tf1.device(cluster.server_device(0)):
            self._updates = tf1.Variable(0, trainable=False, dtype=tf1.int64, name="updates", use_resource=True)
        with tf1.device(mine):
            self.batches = open_batches()
            setter = device_setter(tf1, job["options"]["sharding"], cluster.cluster_of(place), mine)
            self.network = network_of(job, setter, mine)
            loss, pairs, optimizer = gradients_of(
                tf1, job, self.network, self.batches.tensors, use_locking=self.asynchronous
            )
            update = self._update(optimizer, decayed(job, pairs))
            self.fetches = [loss] + update + self.network.running
            self._own = network_of(job, mine) if job["mode"] == "anatomy" else None
            if self._own:
                loss, own_pairs, _ = gradients_of(tf1, job, self._own, self.batches.tensors)
                self.stages = dict(stages_of(self._own, loss, own_pairs), exchange=self.fetches)
                pull = [variable.value().op for variable in self.network.variables]
                self.communication = (pull + update, [gradient for gradient, _ in pairs])
        self._ready = cluster.queue_on(tf1, 0, "ready")
        self._announcement = self._ready.enqueue_many([[0] * (place.workers - 1)])
        self._permission = self._ready.dequeue()
        self._farewell = cluster.farewells(tf1, place)
        own = self._own.variables if self._own else []
        weights = {id(variable) for variable in self.network.variables + own}
        others = [each for each in tf1.global_variables() if id(each) not in weights]
        self._starters = [tf1.local_variables_initializer()]
        self._starters_of_all = [tf1.variables_initializer(others)]
        self.facts = {
            "servers": place.servers,
            "bytes_per_server": bytes_by_server(self.network.variables, place.servers),
        }

    def _update(self, optimizer, pairs):
        """Return what a step runs besides its loss: the push of the gradients and what follows from it."""
        raise NotImplementedError

    def open(self):
        """Return a session; worker 0 leaves first values in everything that lies on servers."""
        session = self._tf1.Session(self._target, config=self._settings)
        if self._place.rank == 0:
            self.network.initialize(session, self._starters + self._starters_of_all)
        else:
            self.network.forget()
            session.run(self._starters)
        return session

    def open_stages(self, session):
        """Give the weights of the second network their first values."""
        self._own.initialize(session)

    def begin(self, session):
        """Wait before the first step until worker 0 says that it may be taken."""
        if self._place.rank:
            session.run(self._permission)

    def announce(self, session):
        """Let the other workers take their first step."""
        if self._place.rank == 0 and self._place.workers > 1:
            session.run(self._announcement)

    def begun(self, session):
        """Called after the first step."""

    def close(self, session):
        """Let the servers go.

        The session stays open: closing it waits for what is still under way on the servers, and the process ends.
        """
        cluster.say_farewell(self._tf1, session, self._farewell)
