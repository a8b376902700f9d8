"""The coordinator of ParameterServerStrategy, a process that sends every worker its steps; and the parameter servers.

Variables lie on the parameter servers, where ``ParameterServerStrategy`` puts them in turn. Each worker has a thread
in the coordinator, which runs the compiled step on the worker's device when the worker asks for it.
"""

import collections
import threading

import numpy
import tensorflow as tf

from steptime.frameworks.tensorflow.ablation import ServedAblation
from steptime.frameworks.tensorflow.cluster import STAGE, accept_callers, call, cluster_of, start_server
from steptime.frameworks.tensorflow.counted_updates import CountedTraining
from steptime.libraries.tensorflow import loader as loaders
from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.startup import call_directly
from steptime.worker.weights import initial_weights


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
            weights = initial_weights(job["workload"]["layers"], job["seed"])
            self._network = TensorFlowNetwork(job["workload"], weights, job["precision"])
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
            batches = self._batches(rank)
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

            def stages():
                with self._building:
                    built = ServedAblation(self._job, self._training, batches).stages()
                answers.update((STAGE + name, _silent(run)) for name, run in built.items())
                return list(built)

            answers.update(step=first_step, stages=stages)
            asked = line.receive()
            while asked in answers:
                line.send({"is": answers[asked]()})
                asked = line.receive()
        if asked == "leave":
            # TensorFlow loses heart when a process of its cluster goes while others still work.
            self._all_leave.wait()
            line.send({"is": None})

    def _batches(self, rank):
        """Return the batches of a worker, which are made and kept there."""
        job = self._job
        shape, batch, seed = job["workload"]["input_shape"], job["batch_per_worker"], job["seed"]
        if job["loader"]["kind"] == "synthetic":
            return loaders.synthetic(job["workload"], batch, job["loader"]["distinct_batches"], seed, rank)
        return loaders.native(job["loader"], shape, batch, seed, rank, self._context.workers, elsewhere=True)


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
