"""Messages as ``SyncReplicasOptimizer`` sends them: gradients pushed to servers and summed there, weights pulled."""

from steptime.frameworks.tensorflow1 import cluster
from steptime.frameworks.tensorflow1.network import version_of
from steptime.worker.framework import ADDED, BackEnd, Message


class PushPullGraph(object):
    """A part of the values on every server, to which the sum of all workers' parts is added.

    ``fill`` (of ``given``), ``exchange`` and ``pulled`` are for the message; ``own_first`` and, for worker 0,
    ``first`` are run before anything else, in this order, and then ``joining`` by the other workers.
    """

    def __init__(self, tf1, context, name, count):
        ends = [count * server // context.servers for server in range(context.servers + 1)]
        # What the optimizer makes without saying where would be on the first server, and one for all workers.
        with tf1.variable_scope(name), tf1.device(cluster.worker_device(context.rank)):
            parts = []
            for server in range(context.servers):
                with tf1.device(cluster.server_device(server)):
                    parts.append(_variable(tf1, tf1.zeros([ends[server + 1] - ends[server]]), "part%d" % server))
            with tf1.device(cluster.server_device(0)):
                updates = _variable(tf1, tf1.zeros([], tf1.int64), "updates")
            self.given = tf1.placeholder(tf1.float32, [count])
            own = _variable(tf1, tf1.zeros([count]), "own%d" % context.rank)
            pulled = _variable(tf1, tf1.zeros([count]), "pulled%d" % context.rank)
            self.fill = own.assign(self.given).op
            shares = [tf1.identity(own[ends[k] : ends[k + 1]]) for k in range(context.servers)]
            # The optimizer divides by the number of workers, and a negative rate adds what it would take away.
            together = tf1.train.SyncReplicasOptimizer(
                tf1.train.GradientDescentOptimizer(-float(context.workers)),
                replicas_to_aggregate=context.workers,
                total_num_replicas=context.workers,
                name=name,
            )
            push = together.apply_gradients(list(zip(shares, parts)), global_step=updates)
            with tf1.control_dependencies([push]):
                self.exchange = pulled.assign(tf1.concat([part.read_value() for part in parts], 0)).op
            self.pulled = pulled.read_value()
        first_tokens = together.get_init_tokens_op(num_tokens=0)
        self.runner = together.get_chief_queue_runner()
        self.own_first = [tf1.variables_initializer([own, pulled]), tf1.local_variables_initializer()]
        self.first = [tf1.variables_initializer(parts + [updates]), together.chief_init_op, first_tokens]
        self.joining = together.local_step_init_op


def _variable(tf1, value, name):
    return tf1.Variable(value, trainable=False, name=name, use_resource=True)


class GraphPushPull(Message):
    """One graph, run again and again."""

    becomes = ADDED

    def __init__(self, back_end, count):
        self._session, self._graph = back_end.session, back_end.graphs[count]
        self._run = self._session.make_callable(self._graph.exchange)

    def fill(self, values):
        self._session.run(self._graph.fill, {self._graph.given: values})

    def run(self):
        self._run()

    def result(self):
        return self._session.run(self._graph.pulled)


class PushPullBackEnd(BackEnd):
    """One worker's session with the servers.

    The graph of all messages is built before the first run, since a session whose threads wait for the servers
    cannot take up anything new.
    """

    messages = {"push_pull": GraphPushPull}

    def __init__(self, tf1, job, context):
        self._tf1 = tf1
        target, settings = cluster.start_worker_server(tf1, context, job)
        counts = [size // 4 for size in job["exchange"]["sizes"]]
        self.graphs = {count: PushPullGraph(tf1, context, "message%d" % count, count) for count in counts}
        ready = cluster.queue_on(tf1, 0, "ready")
        announcement, permission = ready.enqueue_many([[0] * (context.workers - 1)]), ready.dequeue()
        self._farewell = cluster.leave_operation(tf1, context)
        self.session = tf1.Session(target, config=settings)
        for graph in self.graphs.values():
            self.session.run(graph.own_first)
            if context.rank == 0:
                for operation in graph.first:
                    self.session.run(operation)
        self.session.run(announcement if context.rank == 0 else permission)
        for graph in self.graphs.values():
            if context.rank == 0:
                graph.runner.create_threads(self.session, daemon=True, start=True)
            else:
                self.session.run(graph.joining)

    def facts(self):
        return {"framework_version": version_of(self._tf1)}

    def close(self):
        cluster.run_leave_operation(self._tf1, self.session, self._farewell)
