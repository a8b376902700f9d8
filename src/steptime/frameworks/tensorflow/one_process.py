"""MirroredStrategy on one host: worker 0's process computes for all workers, and the others tell what it did.

The processes of the other workers only lend their processor cores. Their records repeat worker 0's: a step of the
strategy is one call that computes for all.
"""

import collections
import os
import threading
import time
from typing import Any, Dict

import numpy

from steptime.frameworks.tensorflow.cluster import PeerConnection
from steptime.worker.handshake import accept_peers, announce_address, connect_peer, open_listener, read_address
from steptime.worker.session import AblatedStep, Session
from steptime.worker.weights import channels_first, channels_last

_MEETING_LIMIT_S = 300.0
_FILE = "one-process.json"
_KEPT_LOSSES = 4096
_POLL_S = 0.005
_GONE = "worker 0, which computes for all workers, has gone; its records say why"


def fits_one_process(job, context):
    """Return whether worker 0's process is to compute for all workers: the job wants it and all are on one host.

    A user's loader has a process for each worker in any case.
    """
    if "own" in job["workload"]:
        return False
    hosts = {address.rsplit(":", 1)[0] for address in context.worker_addresses}
    return job["options"].get("one_process", False) and context.workers > 1 and len(hosts) == 1


def open_one_process(job, context):
    """Return the session of worker 0, which computes, or of another worker, which follows."""
    if context.rank:
        return FollowingSession(context)
    lines = _accept_followers(context)
    if hasattr(os, "sched_setaffinity"):  # before TensorFlow starts its threads
        os.sched_setaffinity(0, os.sched_getaffinity(0).union(*(line.receive() for line in lines)))
    return LeadingSession(job, context, lines)


def _accept_followers(context):
    listener = open_listener(context.root_host)
    announce_address(listener, os.path.join(context.folder, _FILE))
    names = ["worker-%d" % rank for rank in range(1, context.workers)]
    found = accept_peers(listener, context.secret, names, _MEETING_LIMIT_S)
    return [PeerConnection(found[name]) for name in names]


class _CopiedClock(object):
    """Another clock, whose drained ends are kept for the followers."""

    def __init__(self, clock):
        self._clock = clock
        self._drained = []
        self._changed = threading.Condition()
        self.tick, self.settle, self.is_own = clock.tick, clock.settle, clock.is_own

    def drain(self):
        ends = self._clock.drain()
        with self._changed:
            self._drained.append(ends)
            self._changed.notify_all()
        return ends

    def wait_for(self, number):
        """Return what the drain of a number returned, once it has happened."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._drained) > number)
            return self._drained[number]


class _Evaluations(object):
    """The evaluations that all workers ask for at the same points, each with inputs of its own.

    A worker's inputs and outputs cross in a file of the run folder.
    """

    def __init__(self, folder, evaluate):
        """``evaluate`` takes the inputs of all workers by rank, and returns their outputs."""
        self._folder, self._evaluate = folder, evaluate
        self._asked: "collections.Counter[int]" = collections.Counter()
        self._done = 0
        self._changed = threading.Condition()

    def ask(self, rank, number):
        """Wait until the evaluation of a number, from 1 on, is done, which a follower has left its inputs for.

        Returns whether it is done: a follower takes None for worker 0's death.
        """
        with self._changed:
            self._asked[rank] = number
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= number)

    def lead(self, inputs, workers):
        """Evaluate for all workers, once the others have left their inputs; return the outputs of worker 0."""
        with self._changed:
            ranks = range(1, workers)
            self._changed.wait_for(lambda: all(self._asked[rank] > self._done for rank in ranks))
            given = [numpy.load(batch_file(self._folder, rank), allow_pickle=False) for rank in ranks]
            outputs = self._evaluate([inputs] + given)
            for rank in ranks:
                numpy.save(batch_file(self._folder, rank), outputs[rank])
            self._done += 1
            self._changed.notify_all()
        return outputs[0]


def batch_file(folder, rank):
    """Return the path of the file in which a worker's inputs and outputs cross."""
    return os.path.join(folder, "batch-%d.npy" % rank)


class LeadingSession(Session):
    """Worker 0: one process and one compiled step for all workers, each on its own device."""

    def __init__(self, job, context, lines):
        from steptime.libraries.tensorflow.startup import import_tensorflow

        tf = import_tensorflow(job, 0, replicas=context.workers)  # before whatever else imports TensorFlow
        from steptime.frameworks.tensorflow.strategies import OneProcessTraining, ReplicaBatches
        from steptime.libraries.tensorflow.session import TensorFlowSession

        tf.random.set_seed(job["seed"] * 1009)  # of dropout
        strategy = OneProcessTraining(job, context)
        batches = ReplicaBatches(job, context, strategy)
        self._session = TensorFlowSession(tf, strategy, job, context, batches)
        self._strategy = strategy
        self._local_results = strategy.local_results
        self._workers = context.workers
        self._evaluations = _Evaluations(context.folder, self._evaluate)
        self._losses: "collections.deque[Any]" = collections.deque(maxlen=_KEPT_LOSSES)
        self._kept: Dict[Any, Any] = {}
        self._taken = 0
        self._clock = None
        self._stages = None
        self._threads = [
            threading.Thread(target=self._answer, args=(line, 1 + place)) for place, line in enumerate(lines)
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def step(self):
        self._session.step()
        self._losses.append(self._session.newest)
        self._taken += 1

    def clock(self):
        self._clock = _CopiedClock(self._session.clock())
        return self._clock

    def ablate(self):
        ablated = self._session.ablate()
        stages = ablated.stages()
        self._stages = list(stages)
        return _Stages(stages)

    def batches_ahead(self):
        return self._session.batches_ahead()

    def wait(self):
        self._session.wait()

    def loss(self):
        return self._loss_of(self._taken, 0)

    def loss_later(self):
        step = self._taken
        self._kept[step] = self._losses[-1]
        return lambda: self._loss_of(step, 0)

    def parameter_count(self):
        return self._session.parameter_count()

    def output_shape(self):
        return self._session.output_shape()

    def get_weights(self):
        return self._session.get_weights()

    def facts(self):
        return self._session.facts()

    def close(self):
        """Wait until the followers know all, which ask in the end."""
        for thread in self._threads:
            thread.join()
        self._session.close()

    def abort(self):
        """Leave without a word: the followers learn it when their lines break."""

    def set_learning_rate(self, rate):
        self._session.set_learning_rate(rate)

    def outputs(self, inputs):
        return self._evaluations.lead(inputs, self._workers)

    def _evaluate(self, inputs):
        together = self._strategy.distribute([channels_last(each) for each in inputs])
        return [channels_first(each.numpy()) for each in self._local_results(self._session.evaluate(together))]

    def state(self):
        return self._session.state()

    def set_state(self, arrays):
        self._session.set_state(arrays)

    def _loss_of(self, step, rank):
        """Return a worker's loss in a step, which are counted from 1, once it was taken."""
        while self._taken < step:
            time.sleep(_POLL_S)
        newest = self._taken
        loss = self._kept[step] if step in self._kept else self._losses[step - newest - 1]
        return float(self._local_results(loss)[rank].numpy())

    def _answer(self, line, rank):
        asked = line.receive()
        while asked is not None:
            what, number = asked
            if what == "loss":
                answer = self._loss_of(number, rank)
            elif what == "outputs":
                answer = self._evaluations.ask(rank, number)
            elif what == "ends":
                answer = self._wait_for("_clock").wait_for(number)
            elif what == "stages":
                answer = self._wait_for("_stages")
            else:
                answer = getattr(self, what)()
            line.send(answer)
            asked = line.receive()

    def _wait_for(self, name):
        while getattr(self, name) is None:
            time.sleep(_POLL_S)
        return getattr(self, name)


class _Stages(AblatedStep):
    """Stages that are there already; one compiled step for all workers has no moments of its own to tell."""

    def __init__(self, stages):
        self._stages = stages

    def stages(self):
        return self._stages


class _FollowingClock(object):
    """Worker 0's clock, seen from another worker, which ticks and drains it in the same order."""

    is_own = False

    def __init__(self, ask):
        self._ask = ask
        self._drained = 0

    def tick(self):
        """Worker 0 marks the end."""

    def settle(self):
        """Worker 0 waits for it."""
        return False

    def drain(self):
        self._drained += 1
        return self._ask("ends", self._drained - 1)


class FollowingSession(Session):
    """Another worker, whose steps worker 0 computes."""

    def __init__(self, context):
        path = os.path.join(context.folder, _FILE)
        found = connect_peer(lambda: read_address(path), context.secret, context.name, _MEETING_LIMIT_S)
        self._line = PeerConnection(found)
        self._line.send(sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [])
        self._taken = 0
        self._evaluated = 0
        self._batch_file = batch_file(context.folder, context.rank)

    def step(self):
        self._taken += 1

    def clock(self):
        return _FollowingClock(self._ask)

    def ablate(self):
        return _Stages(dict.fromkeys(self._ask("stages"), _nothing))

    def batches_ahead(self):
        return self._ask("batches_ahead")

    def wait(self):
        """Worker 0 waits."""

    def loss(self):
        return self._ask("loss", self._taken)

    def loss_later(self):
        step = self._taken
        return lambda: self._ask("loss", step)

    def parameter_count(self):
        return self._ask("parameter_count")

    def output_shape(self):
        return self._ask("output_shape")

    def get_weights(self):
        """Worker 0 holds the weights."""
        return

    def set_learning_rate(self, rate):
        """Worker 0 sets it."""

    def outputs(self, inputs):
        numpy.save(self._batch_file, inputs)
        self._evaluated += 1
        self._ask("outputs", self._evaluated)
        return numpy.load(self._batch_file, allow_pickle=False)

    def state(self):
        """Worker 0 holds the state of all."""
        return {}

    def set_state(self, arrays):
        """Worker 0 goes on from the state of all."""

    def facts(self):
        return self._ask("facts")

    def close(self):
        self._line.send(None)

    def abort(self):
        """Leave without a word."""

    def _ask(self, what, number=0):
        self._line.send([what, number])
        answer = self._line.receive()
        if answer is None:
            raise RuntimeError(_GONE)
        return answer


def _nothing():
    """Worker 0 runs the stage."""
