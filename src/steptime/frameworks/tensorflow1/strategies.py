"""The strategies of TensorFlow 1, each a graph: one process, or a worker of synchronous or asynchronous servers.

``ps_sync`` is ``tf.train.SyncReplicasOptimizer``; with ``ps_async`` every worker applies its gradients to the servers'
weights when it has them. Worker 0 gives the weights their first values; ``tf.train.replica_device_setter``, with one
of two rules, decides which server holds which weights.
"""

from typing import Any

from steptime.frameworks.tensorflow1 import cluster
from steptime.frameworks.tensorflow1.checkpoint import GraphEvaluation, GraphVariables
from steptime.frameworks.tensorflow1.cluster import server_device
from steptime.frameworks.tensorflow1.network import GraphNetwork, session_settings
from steptime.frameworks.tensorflow1.optimizers import GraphRate, decayed, open_optimizer
from steptime.worker.communication import ServerLoads
from steptime.worker.weights import initial_weights


def build_network(job, where=None, kept_at=None):
    """Return the job's workload in the default graph; the devices are those of ``GraphNetwork``."""
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return GraphNetwork(job["workload"], weights, where, kept_at, job["label_smoothing"])


def may_learn(job):
    """Whether a job may change the learning rate, evaluate and keep its state: the timed graphs do none of these."""
    return job["learns"]


def rate_of(tf1, job):
    """Return the learning rate of a graph: a number, or a ``GraphRate`` where the job may change it."""
    rate = job["optimizer"]["learning_rate"]
    return GraphRate(tf1, rate) if may_learn(job) else rate


def build_gradients(network, optimizer, batch):
    """Return ``(loss, pairs)``, where pairs are gradients of the loss with their variables.

    Args:
        network: a ``GraphNetwork``.
        optimizer: TensorFlow's.
        batch: tensors of inputs and targets.
    """
    loss = network.loss(*batch)
    return loss, optimizer.compute_gradients(loss, network.variables)


def stage_fetches(network, loss, pairs):
    """Return what the stages before the update run: ``{"forward": fetches, "backward": fetches}``.

    Gradients are run and not fetched: only what is asked for is handed to Python.
    """
    forward = [loss] + network.running
    return {"forward": forward, "backward": forward + [gradient.op for gradient, _ in pairs]}


class GraphLearning(object):
    """What a graph needs beyond its steps to be trained until it is over.

    ``rate``
        The ``GraphRate``.
    ``evaluation``
        The ``GraphEvaluation``.
    ``variables``
        The ``GraphVariables`` of this worker's state.
    """

    def __init__(self, tf1, job, network, rate, shared):
        """Build it; ``shared`` are variables of the state beyond the running statistics."""
        self.rate = rate
        self.evaluation = GraphEvaluation(tf1, network, job["batch_per_worker"], job["workload"]["input_shape"])
        self.variables = GraphVariables(tf1, dict(network.statistics, **shared))


def trained_state(network, optimizer):
    """Return ``{name: variable}`` of the weights and of what the optimizer keeps."""
    kept = {"optimizer/%d" % place: variable for place, variable in enumerate(optimizer.variables())}
    return dict(kept, **network.named_variables)


class SingleGraph(object):
    """A graph without servers; ``learning`` is its ``GraphLearning``, None in graphs that are only timed."""

    asynchronous = False
    communication: Any = None

    def __init__(self, tf1, job, _, open_batches):
        """Build the graph; ``open_batches`` returns this worker's batches, whose tensors lie in the graph."""
        self._tf1 = tf1
        xla = job["options"]["xla"]
        self._settings = session_settings(tf1, job["threads"], xla=xla)
        self.facts = {"xla": xla}
        self.batches = open_batches()
        self.network = build_network(job)
        settings, rate = job["optimizer"], rate_of(tf1, job)
        optimizer = open_optimizer(tf1, settings, rate, use_locking=False)
        loss, pairs = build_gradients(self.network, optimizer, self.batches.tensors)
        self.fetches = [loss, optimizer.apply_gradients(decayed(settings, pairs))] + self.network.running
        self.learning: Any = None
        if may_learn(job):
            self.learning = GraphLearning(tf1, job, self.network, rate, trained_state(self.network, optimizer))
        self.stages = dict(stage_fetches(self.network, loss, pairs), local=self.fetches)
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
        """There is no other worker to wait for."""

    def begun(self, session):
        """Nor anybody who waits."""

    def agree_on_state(self, session):
        """There is no other worker to agree with."""

    def close(self, session):
        """There is no group to leave."""


class BalancedSharding(object):
    """Each variable goes to the server that holds the fewest bytes so far.

    The rule of ``tf.contrib.training.GreedyLoadBalancingStrategy``, which later TensorFlows do not have, and whose
    usual load function takes a variable that is a resource for as large as its handle.
    """

    def __init__(self, servers):
        self._loads = ServerLoads(servers)

    def __call__(self, op):
        """Return the server for the variable that ``op`` makes."""
        size = op.get_attr("dtype").size
        for axis in op.get_attr("shape").dim:
            size *= axis.size
        return self._loads.add_to_lightest(size)


def device_setter(tf1, sharding, cluster, worker_device):
    """Return the device function for the variables of one worker.

    Args:
        tf1: TensorFlow.
        sharding: ``round_robin`` or ``balanced``.
        cluster: ``{"ps": addresses, "worker": addresses}``.
        worker_device: of the worker, where all that is not a variable goes.
    """
    chosen = BalancedSharding(len(cluster["ps"])) if sharding == "balanced" else None  # round robin is TensorFlow's own
    return tf1.train.replica_device_setter(cluster=cluster, worker_device=worker_device, ps_strategy=chosen)


def bytes_by_server(variables, servers):
    """Return how many bytes of weights each server holds, as a list."""
    held = [0] * servers
    for variable in variables:
        held[int(variable.device.rsplit("task:", 1)[1].split("/")[0])] += variable.shape.num_elements() * 4
    return held


class GraphServers(object):
    """A worker's own graph ("between-graph replication"), in which only the weights are everybody's.

    ``stages`` and ``communication`` are for ``stages.py``. The stages before the exchange are those of a second
    network, whose weights are the worker's own.
    """

    asynchronous = False
    """Whether the second result of a step is the staleness of its update."""
    stages: Any = None
    communication: Any = None

    def __init__(self, tf1, job, context, open_batches):
        """Build the graph; ``open_batches`` returns this worker's batches, whose tensors lie in the graph."""
        self._tf1 = tf1
        self._context = context
        self._target, self._settings = cluster.start_worker_server(tf1, context, job)
        mine = cluster.worker_device(context.rank)
        with tf1.device(cluster.server_device(0)):
            self._updates = tf1.Variable(0, trainable=False, dtype=tf1.int64, name="updates", use_resource=True)
        with tf1.device(mine):
            self.batches = open_batches()
            setter = device_setter(tf1, job["options"]["sharding"], cluster.cluster_of(context), mine)
            self.network = build_network(job, setter, mine)
            settings, rate = job["optimizer"], rate_of(tf1, job)
            optimizer = open_optimizer(tf1, settings, rate, use_locking=self.asynchronous)
            loss, pairs = build_gradients(self.network, optimizer, self.batches.tensors)
            update = self._update(optimizer, decayed(settings, pairs), rate)
            self.fetches = [loss] + update + self.network.running
            self._own: Any = build_network(job, mine) if job["ablated"] else None
            if self._own:
                loss, own_pairs = build_gradients(self._own, optimizer, self.batches.tensors)
                self.stages = dict(stage_fetches(self._own, loss, own_pairs), exchange=self.fetches)
                pull = [variable.value().op for variable in self.network.variables]
                self.communication = (pull + update, [gradient for gradient, _ in pairs])
            self.learning: Any = None
            if may_learn(job):
                shared = trained_state(self.network, optimizer) if context.rank == 0 else {}
                self.learning = GraphLearning(tf1, job, self.network, rate, shared)
        self._announcement, self._permission = self._signal("ready")
        self._restored, self._permission_to_go_on = self._signal("restored")
        self._farewell = cluster.leave_operation(tf1, context)
        own = self._own.variables if self._own else []
        weights = {id(variable) for variable in self.network.variables + own}
        others = [each for each in tf1.global_variables() if id(each) not in weights]
        self._starters = [tf1.local_variables_initializer()]
        self._starters_of_all = [tf1.variables_initializer(others)]
        self.facts = {
            "servers": context.servers,
            "sharding": job["options"]["sharding"],
            "bytes_per_server": bytes_by_server(self.network.variables, context.servers),
        }

    def _signal(self, name):
        """Return the operations by which worker 0 lets the others go on, and by which each of them waits for it."""
        queue = cluster.queue_on(self._tf1, 0, name)
        return queue.enqueue_many([[0] * (self._context.workers - 1)]), queue.dequeue()

    def _update(self, optimizer, pairs, rate):
        """Return what a step runs besides its loss: the push of the gradients and what follows from it."""
        raise NotImplementedError

    def open(self):
        """Return a session; worker 0 leaves first values in everything that lies on servers."""
        session = self._tf1.Session(self._target, config=self._settings)
        if self._context.rank == 0:
            self.network.initialize(session, self._starters + self._starters_of_all)
        else:
            self.network.forget()
            session.run(self._starters)
        return session

    def open_stages(self, session):
        """Give the weights of the second network their first values."""
        self._own.initialize(session)

    def begin(self, session):
        """Wait before the first step until worker 0 allows it."""
        if self._context.rank:
            session.run(self._permission)

    def announce(self, session):
        """Let the other workers take their first step."""
        if self._context.rank == 0 and self._context.workers > 1:
            session.run(self._announcement)

    def begun(self, session):
        """Called after the first step."""

    def agree_on_state(self, session):
        """Wait until worker 0 has set what the servers hold, each worker's running statistics being set already."""
        if self._context.rank:
            session.run(self._permission_to_go_on)
        elif self._context.workers > 1:
            session.run(self._restored)

    def close(self, session):
        """Let the servers go.

        The session stays open: closing it waits for what is still under way on the servers, and the process ends.
        """
        cluster.run_leave_operation(self._tf1, session, self._farewell)


class AsynchronousGraph(GraphServers):
    """Updates of one variable come one after the other, but different variables may see them in different orders.

    Server 0 counts the updates. The count is read when the weights are pulled and again behind the worker's own
    update: what others have added meanwhile is the update's staleness.
    """

    asynchronous = True

    def _update(self, optimizer, pairs, _):
        tf1 = self._tf1
        with tf1.device(server_device(0)):
            pulled = self._updates.read_value()
        applied = optimizer.apply_gradients(pairs)
        with tf1.control_dependencies([applied]), tf1.device(server_device(0)):
            others = tf1.convert_to_tensor(self._updates.assign_add(1)) - 1 - pulled
        return [others]

    def begun(self, session):
        # Not earlier: worker 0's first loss, which is compared with the reference, is that of the initial weights.
        self.announce(session)


def _read_rate_late(optimizer, rate):
    """Have ``optimizer``, which ``SyncReplicasOptimizer`` wraps, read the rate when a mean of gradients is there.

    Worker 0 asks for the next update when the last is done, and would take the rate of that moment along. The last
    layer's mean is the first to come, and by then every worker has begun the step.
    """
    apply = optimizer.apply_gradients

    def apply_late(pairs, *args, **named):
        pairs = list(pairs)
        rate.after = [pairs[-1][0]]
        return apply(pairs, *args, **named)

    optimizer.apply_gradients = apply_late


class SynchronousGraph(GraphServers):
    """Servers collect the gradients of all workers and update with their mean; tokens let the workers go on.

    A thread of worker 0 asks the servers for each update.
    """

    def _update(self, optimizer, pairs, rate):
        workers = self._context.workers
        if isinstance(rate, GraphRate):
            _read_rate_late(optimizer, rate)
        together = self._tf1.train.SyncReplicasOptimizer(
            optimizer, replicas_to_aggregate=workers, total_num_replicas=workers
        )
        push = together.apply_gradients(pairs, global_step=self._updates)
        # The optimizer's own default is a token for each worker before the first update: with these, the workers would
        # be a step ahead of the weights, and their gradients would be dropped as too old.
        self._first_tokens = together.get_init_tokens_op(num_tokens=0)
        self._runner = together.get_chief_queue_runner()
        self._beginning = together.chief_init_op if self._context.rank == 0 else together.local_step_init_op
        return [push]

    def open(self):
        session = super(SynchronousGraph, self).open()
        if self._context.rank == 0:
            session.run(self._beginning)
            session.run(self._first_tokens)
            self.announce(session)
        return session

    def begin(self, session):
        super(SynchronousGraph, self).begin(session)
        if self._context.rank:
            session.run(self._beginning)
        else:
            # Not earlier: what asks for an update reads the counts of Adam at once, which a state may have set before.
            self._runner.create_threads(session, daemon=True, start=True)
