"""The coordinator of ParameterServerStrategy, a process that sends every worker its steps; and the parameter servers.

Variables lie on the parameter servers, where ``ParameterServerStrategy`` puts them in turn. Each worker has a thread
in the coordinator, which runs the compiled step, or a stage of its ablation, on the worker's device when the worker
asks for it.
"""

import collections
import os
import threading

import numpy
import tensorflow as tf

from steptime.frameworks.tensorflow.cluster import STAGE, accept_callers, call, cluster_of, start_server
from steptime.libraries.tensorflow.ablation import compile_on
from steptime.libraries.tensorflow.loader import open_tensorflow_batches
from steptime.libraries.tensorflow.startup import call_directly, collect_garbage
from steptime.libraries.tensorflow.training_step import TensorFlowTraining, build_network
from steptime.worker.ablated_step import AblatedStep


class CountedTraining(TensorFlowTraining):
    """Counts the updates of all workers in a variable of a server.

    The count is read with the weights and again behind this step's own update: what others added meanwhile is the
    staleness of the update.
    """

    use_locking = True

    def __init__(self, network, optimizer, extended, count):
        """Make the velocities.

        Args:
            network: a ``TensorFlowNetwork``.
            optimizer: of the job.
            extended: of the strategy whose scope is in force.
            count: the variable.
        """
        self._extended = extended
        self._count = count
        super(CountedTraining, self).__init__(network, optimizer)

    def _velocity(self, variable):
        with self._extended.colocate_vars_with(variable):
            return super(CountedTraining, self)._velocity(variable)

    def step(self, inputs, targets):
        """Train on one batch and return its loss before the update and the update's staleness, as one tensor."""
        pulled = self._count.read_value()
        loss, updates = self._train(inputs, targets)
        return tf.stack([loss, tf.cast(self._late(pulled, updates), tf.float32)])

    def exchange(self, gradients):
        """Do what a step does beside its computation: pull all weights, and push ``gradients``."""
        pulled = self._count.read_value()
        weights = [tf.identity(variable) for variable in self._variables]
        return self._late(pulled, self.update(gradients)), weights

    def _late(self, pulled, updates):
        with tf.control_dependencies(updates):
            return self._count.assign_add(1).read_value() - 1 - pulled


class ServedAblation(AblatedStep):
    """The stages of the worker whose device is in force.

    The stages before the exchange have weights of their own, on the worker, so that they pull nothing. What is pushed
    without being computed is zeros, because the servers apply it.
    """

    def __init__(self, job, training, batches):
        """Take the job, the ``CountedTraining`` of all workers, and the batches of this worker."""
        self._job = job
        self._training = training
        self._batches = batches

    def stages(self):
        network = build_network(self._job)
        own = TensorFlowTraining(network, self._job["optimizer"])
        take = self._batches.taker()
        held = take()
        zeros = [tf.zeros(variable.shape) for variable in network.variables]
        stages = {
            "forward": compile_on(own.forward, *held),
            "backward": compile_on(own.backward, *held),
            "exchange": compile_on(self._training.step, *held),
            "communication": compile_on(self._training.exchange, zeros),
            "input": take,
        }
        collect_garbage()
        return stages


class Coordinator(object):
    """Owns the variables and the step of one launch."""

    def __init__(self, job, context):
        """Meet all servers and workers, and make the variables."""
        addresses = cluster_of(context)
        call_directly([address for job_addresses in addresses.values() for address in job_addresses])
        strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(addresses), task_type="chief", task_id=0, rpc_layer="grpc"
            )
        )
        self._job = job
        self._context = context
        with strategy.scope():
            updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
            self._network = build_network(job)
            self._training = CountedTraining(self._network, job["optimizer"], strategy.extended, updates)
        self._first_is_done = threading.Event()
        self._building = threading.Lock()
        self._all_leave = threading.Barrier(context.workers)

    def coordinate(self):
        """Do what the workers ask for, until all have left."""
        lines = accept_callers(self._context)  # servers say nothing more: they wait until their line breaks
        ranks = range(self._context.workers)
        threads = [threading.Thread(target=self._attend, args=(lines["worker-%d" % rank], rank)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _attend(self, line, rank):
        """Answer one worker until it leaves."""
        try:
            self._answer(line, rank)
        except Exception as error:
            line.send({"error": "%s: %s" % (type(error).__name__, error)})

    def _answer(self, line, rank):
        with tf.device("/job:worker/replica:0/task:%d/device:CPU:0" % rank):
            batches = open_tensorflow_batches(self._job, rank, self._context.workers, elsewhere=True)
            advance = batches.feed(self._training.step)
            line.send({"is": {"servers": self._context.servers, "loader_threads": batches.threads}})
            results = StepResults(self._network)
            answers = dict(results.answers, batches_ahead=lambda: batches.ahead)

            def step():
                results.add(advance())
                self._first_is_done.set()

            def first_step():
                # Worker 0 takes the very first step alone: its first loss is that of the initial weights.
                if rank:
                    self._first_is_done.wait()
                answers["step"] = step
                step()

            def weights():
                path = os.path.join(self._context.folder, "served-%d.npz" % rank)
                numpy.savez(path, **self._network.get_weights())
                return path

            def stages():
                with self._building:
                    built = ServedAblation(self._job, self._training, batches).stages()
                answers.update((STAGE + name, _silent(run)) for name, run in built.items())
                return list(built)

            answers.update(step=first_step, stages=stages, weights=weights)
            asked = line.receive()
            while asked in answers:
                line.send({"is": answers[asked]()})
                asked = line.receive()
        if asked == "leave":
            # TensorFlow loses heart when a process of its cluster goes while others still work.
            self._all_leave.wait()
            line.send({"is": None})


def _silent(run):
    """Return what runs ``run`` and keeps its results to itself."""

    def answer():
        run()

    return answer


class StepResults(object):
    """What the steps of one worker returned: tensors that stay on the worker until somebody asks."""

    def __init__(self, network):
        self._last = None
        self._uncounted = []
        self.answers = {
            "loss": self._loss,
            "staleness": self._staleness,
            "parameter_count": network.parameter_count,
            "output_shape": network.output_shape,
        }

    def add(self, result):
        """Keep the result of one step: its loss, and how late its update was."""
        self._last = result
        self._uncounted.append(result)

    def _loss(self):
        return float(self._last.numpy()[0])

    def _staleness(self):
        late = tf.stack(self._uncounted).numpy()[:, 1] if self._uncounted else numpy.empty(0)
        self._uncounted = []
        return collections.Counter(late.astype(int).tolist())


def run_server(tf, context):
    """Hold weights until the coordinator has gone; TensorFlow's own ``join`` would never return."""
    start_server(tf, context, None)
    call(context).receive()


def run_coordinator(job, context):
    """Send all workers their steps until they have left."""
    Coordinator(job, context).coordinate()
