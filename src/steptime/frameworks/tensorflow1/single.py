"""The strategy ``single``: one process that updates its own weights."""

from steptime.frameworks.tensorflow1.training import decayed, gradients_of, network_of, stages_of
from steptime.worker.builders.tensorflow1 import session_settings


class Single(object):
    """A graph without servers."""

    facts = {}
    asynchronous = False
    communication = None

    def __init__(self, tf1, job, _, open_batches):
        """Build the graph; ``open_batches`` returns this worker's batches, whose tensors lie in the graph."""
        self._tf1 = tf1
        self._settings = session_settings(tf1, job["threads"])
        self.batches = open_batches()
        self.network = network_of(job)
        loss, pairs, optimizer = gradients_of(tf1, job, self.network, self.batches.tensors)
        self.fetches = [loss, optimizer.apply_gradients(decayed(job, pairs))] + self.network.running
        self.stages = dict(stages_of(self.network, loss, pairs), local=self.fetches)
        weights = {id(variable) for variable in self.network.variables}
        others = [each for each in tf1.global_variables() if id(each) not in weights]
        self._starters = [tf1.variables_initializer(others), tf1.local_variables_initializer()]

    def open(self):
        """Return a session in which everything has its first value."""
        session = self._tf1.Session(config=self._settings)
        self.network.initialize(session, self._starters)
        return session

    def open_stages(self, session):
        """All stages are parts of the step."""

    def begin(self, session):
        """There is nobody to wait for."""

    def begun(self, session):
        """Nor anybody who waits."""

    def close(self, session):
        """There is nobody to part from."""
