"""The coordinator of ParameterServerStrategy, a process that schedules every step; and the parameter servers.

Variables lie on the parameter servers, where ``ParameterServerStrategy`` puts them in turn. ``ClusterCoordinator``
gives each step to the worker that is free. The coordinator's own threads read what workers ask for and answer when it
is done; besides, they run the stages of a worker's ablation on its device.
"""

import collections
import contextlib
import functools
import os
import queue
import threading
from typing import Any

import numpy
import tensorflow as tf

from steptime.frameworks.tensorflow.cluster import (
    EVALUATE,
    LEAVE,
    SAVE_STATE,
    SET_RATE,
    SET_STATE,
    STAGE,
    accept_callers,
    call,
    cluster_of,
    start_server,
)
from steptime.frameworks.tensorflow.scheduled_batches import open_scheduled_batches
from steptime.libraries.tensorflow.session import read_variables, set_variables
from steptime.libraries.tensorflow.startup import call_directly, collect_garbage
from steptime.libraries.tensorflow.training_step import TensorFlowTraining, build_network, compile_on
from steptime.worker.weights import FirstWeights


class CountedTraining(TensorFlowTraining):
    """Counts the updates of all workers in a variable of a server.

    The count is read with the weights and again behind this step's own update: what others added meanwhile is the
    staleness of the update.
    """

    use_locking = True

    def __init__(self, network, optimizer, extended, count):
        """Make what the optimizer keeps.

        Args:
            network: a ``TensorFlowNetwork``.
            optimizer: of the job.
            extended: of the strategy whose scope is in force.
            count: the variable.
        """
        self._extended = extended
        self._count = count
        super(CountedTraining, self).__init__(network, optimizer)

    @property
    def kept(self):
        return dict(super(CountedTraining, self).kept, updates=self._count)

    def _slot(self, variable, name):
        with self._extended.colocate_vars_with(variable):
            return super(CountedTraining, self)._slot(variable, name)

    def step(self, inputs, targets, rate=None):
        """Train on one batch and return its loss before the update and the update's staleness, as one tensor.

        ``rate`` is the learning rate of the worker that asked for the step, where it has set one.
        """
        pulled = self._count.read_value()
        loss, gradients = self.backward(inputs, targets)
        updates = self.update(gradients, rate)
        return tf.stack([loss, tf.cast(self._late(pulled, updates), tf.float32)])

    def exchange(self, gradients):
        """Do what a step does beside its computation: pull all weights, and push ``gradients``."""
        pulled = self._count.read_value()
        weights = [tf.identity(variable) for variable in self._variables]
        return self._late(pulled, self.update(gradients)), weights

    def _late(self, pulled, updates):
        with tf.control_dependencies(updates):
            return self._count.assign_add(1).read_value() - 1 - pulled


class Coordinator(object):
    """Owns the variables of one launch, and has TensorFlow's ``ClusterCoordinator`` schedule every step."""

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
        self._scheduler = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
            self._network = build_network(job)
            self._training = CountedTraining(self._network, job["optimizer"], strategy.extended, updates)
        self._batches = open_scheduled_batches(job, context.workers, self._scheduler)
        self._step = self._batches.feed(self._training.step)
        self._first_is_done = threading.Event()
        self._building = threading.Lock()
        self._rates = {}
        self._evaluate = tf.function(self._network.evaluate, autograph=False)
        self._state_is_set = threading.Event()
        self._all_leave = threading.Barrier(context.workers)

    @property
    def network(self):
        """The ``TensorFlowNetwork`` whose variables lie on the servers."""
        return self._network

    @property
    def batches(self):
        """The batches of all workers."""
        return self._batches

    def let_begin(self):
        """Let every worker step: an ablation run has no first step whose loss matters."""
        self._first_is_done.set()

    def coordinate(self):
        """Do what the workers ask for, until all have left."""
        lines = accept_callers(self._context)  # servers say nothing more: they wait until their line breaks
        ranks = range(self._context.workers)
        threads = [threading.Thread(target=self._listen, args=(lines["worker-%d" % rank], rank)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _listen(self, line, rank):
        """Read what one worker asks for, until it leaves: a step is scheduled at once, and answered when it is done."""
        answers: "queue.Queue[Any]" = queue.Queue()
        speaking = threading.Thread(target=self._speak, args=(line, answers), daemon=True)
        speaking.start()
        answers.put(lambda: {"servers": self._context.servers, "loader_threads": self._batches.threads})
        asker = _Asker(self, rank)
        asked = line.receive()
        while asked is not None:
            answers.put(asker.work(asked))
            asked = None if asked == LEAVE else line.receive()
        answers.put(None)
        speaking.join()

    def _speak(self, line, answers):
        """Send the result of each piece of work, in the order in which the worker asked."""
        for work in iter(answers.get, None):
            with contextlib.suppress(OSError):  # the worker has gone
                line.send(self._done(work))

    def _done(self, work):
        """Wait for a piece of work, and return the message that answers it."""
        try:
            return {"is": work()}
        except Exception as error:
            return {"error": "%s: %s" % (type(error).__name__, self._batches.fault() or error)}

    def schedule(self, rank, *, first):
        """Schedule a step that a worker asked for, and return its ``RemoteValue``."""
        if not first:
            # The very first step is alone, so that its loss is that of the initial weights. It is worker 0's, but where
            # a training begins with given weights: there workers take turns, and any may be the first.
            self._first_is_done.wait()
        return self._scheduler.schedule(self._step, args=self._batches.arguments(rank) + self._rates.get(rank, ()))

    def set_learning_rate(self, rank, rate):
        """Apply the gradients of a worker with a learning rate from the next step on that it asks for."""
        self._rates[rank] = (tf.constant(rate, tf.float32),)

    def evaluate(self, rank, path):
        """Replace the inputs in a file, channels last, by the network's outputs, which a worker's device computes."""
        with tf.device(device_of(rank)):
            outputs = self._evaluate(tf.constant(numpy.load(path, allow_pickle=False)))
        numpy.save(path, outputs.numpy())

    def _kept(self):
        return dict(self._network.named_variables, **dict(self._network.statistics, **self._training.kept))

    def save_state(self, rank, path):
        """Write the state of all servers to a file, for worker 0 alone; return whether it was written."""
        if rank == 0:
            numpy.savez(path, **read_variables(self._kept()))
        return rank == 0

    def set_state(self, rank, path):
        """Go on from what worker 0 kept; the others wait until that is done."""
        if rank:
            self._state_is_set.wait()
            return
        with numpy.load(path, allow_pickle=False) as file:
            set_variables(self._kept(), file)
        self._state_is_set.set()

    def finish(self, step):
        """Wait for a scheduled step, and return its loss and how late its update was."""
        result = step.fetch()
        self._first_is_done.set()
        return result

    def part(self):
        """Wait until every worker leaves: TensorFlow loses heart when a process goes while others still work."""
        self._all_leave.wait()

    def save_weights(self, rank):
        """Write what the servers hold into the run folder for a worker, and return the path."""
        path = os.path.join(self._context.folder, "served-%d.npz" % rank)
        numpy.savez(path, **self._network.get_weights())
        return path

    def build_stages(self, rank):
        """Return the stages of a worker, ``{name: callable}``.

        The stages before the exchange have weights of their own, on the worker, so that they pull nothing. What is
        pushed without being computed is zeros, because the servers apply it.
        """
        with self._building, tf.device(device_of(rank)):
            network = build_network(self._job)
            own = TensorFlowTraining(network, self._job["optimizer"])
            take = self._batches.taker(rank)
            held = take()
            zeros = [tf.zeros(variable.shape) for variable in network.variables]
            stages = {
                "forward": compile_on(own.forward, *held),
                "backward": compile_on(own.backward, *held),
                "communication": compile_on(self._training.exchange, zeros),
                "input": take,
            }
        collect_garbage()
        return dict(stages, exchange=lambda: self.finish(self.schedule(rank, first=False)))


class _Asker(object):
    """What one worker may ask for; the result of its last step stays until it asks for more."""

    def __init__(self, coordinator, rank):
        self._coordinator = coordinator
        self._rank = rank
        self._begun = False
        self._last: Any = None
        self._uncounted = []
        self._stages = {}

    def work(self, asked):
        """Begin what was asked for, and return what waits for its result."""
        coordinator = self._coordinator
        if asked == "step":
            first, self._begun = not self._begun and (self._rank == 0 or FirstWeights.path is not None), True
            try:
                step = coordinator.schedule(self._rank, first=first)
            except Exception as error:  # of an earlier step: TensorFlow raises it when it is asked for another
                return functools.partial(_raise, error)
            return lambda: self._add(coordinator.finish(step))
        what, argument = asked if isinstance(asked, list) else (asked, None)
        if what == SET_RATE:
            coordinator.set_learning_rate(self._rank, argument)  # now: what is asked for next is scheduled next
            return lambda: None
        network, batches = coordinator.network, coordinator.batches
        return {
            "loss": lambda: float(self._last[0]),
            "staleness": self._staleness,
            "parameter_count": network.parameter_count,
            "output_shape": network.output_shape,
            "batches_ahead": lambda: batches.ahead,
            "stages": self._build,
            "weights": functools.partial(coordinator.save_weights, self._rank),
            EVALUATE: functools.partial(coordinator.evaluate, self._rank, argument),
            SAVE_STATE: functools.partial(coordinator.save_state, self._rank, argument),
            SET_STATE: functools.partial(coordinator.set_state, self._rank, argument),
            LEAVE: coordinator.part,
        }.get(what) or functools.partial(self._run, asked)

    def _add(self, result):
        """Keep what a step came to, and return its loss."""
        self._last = result
        self._uncounted.append(int(result[1]))
        return float(result[0])

    def _staleness(self):
        counted, self._uncounted = collections.Counter(self._uncounted), []
        return counted

    def _build(self):
        self._coordinator.let_begin()
        self._stages = self._coordinator.build_stages(self._rank)
        return list(self._stages)

    def _run(self, asked):
        with tf.device(device_of(self._rank)):
            self._stages[asked[len(STAGE) :]]()


def device_of(rank):
    """Return TensorFlow's name for the device of a worker."""
    return "/job:worker/replica:0/task:%d/device:CPU:0" % rank


def _raise(error):
    raise error


def run_server(tf, job, context):
    """Hold weights until the coordinator has gone; TensorFlow's own ``join`` would never return.

    Returns how many threads an operation of the server has, and how many operations run at once.
    """
    at_once = start_server(tf, context, job["threads"])
    call(context).receive()
    return {"threads": job["threads"], "operations_at_once": at_once}


def run_coordinator(job, context):
    """Send all workers their steps until they have left."""
    Coordinator(job, context).coordinate()
