"""The strategy ``ps_sync``: ``tf.train.SyncReplicasOptimizer``."""

from steptime.frameworks.tensorflow1.served import Served


class Synchronous(Served):
    """Servers collect the gradients of all workers and update with their mean; tokens let the workers go on.

    A thread of worker 0 asks the servers for each update.
    """

    def _update(self, optimizer, pairs):
        workers = self._place.workers
        together = self._tf1.train.SyncReplicasOptimizer(
            optimizer, replicas_to_aggregate=workers, total_num_replicas=workers
        )
        push = together.apply_gradients(pairs, global_step=self._updates)
        # The optimizer's own default is a token for each worker before the first update: with these, the workers would
        # be a step ahead of the weights, and their gradients would be dropped as too old.
        self._first_tokens = together.get_init_tokens_op(num_tokens=0)
        self._runner = together.get_chief_queue_runner()
        self._beginning = together.chief_init_op if self._place.rank == 0 else together.local_step_init_op
        return [push]

    def open(self):
        session = super(Synchronous, self).open()
        if self._place.rank == 0:
            session.run(self._beginning)
            session.run(self._first_tokens)
            self._runner.create_threads(session, daemon=True, start=True)
            self.announce(session)
        return session

    def begin(self, session):
        super(Synchronous, self).begin(session)
        if self._place.rank:
            session.run(self._beginning)
