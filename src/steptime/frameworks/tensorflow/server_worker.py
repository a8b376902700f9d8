"""A worker of the strategy ``ps_async``: its TensorFlow server computes, and its Python asks for steps ahead."""

import collections
import functools
import os
import queue
import threading
import time
from typing import Any

import numpy

from steptime.frameworks.tensorflow.cluster import (
    EVALUATE,
    LEAVE,
    SAVE_STATE,
    SET_RATE,
    SET_STATE,
    STAGE,
    call,
    start_server,
)
from steptime.worker.clock import EventClock
from steptime.worker.session import AblatedStep, Session
from steptime.worker.weights import channels_first, channels_last

_STEPS_AHEAD = 4
"""Steps that a worker asks for before the first of them is done; a user's loop schedules a whole epoch."""


class CoordinatedAblation(AblatedStep):
    """Stages that the coordinator runs; it sees no phase of a step end."""

    def __init__(self, ask):
        """``ask`` sends a request to the coordinator and returns its answer."""
        self._ask = ask

    def stages(self):
        return {name: functools.partial(self._ask, STAGE + name) for name in self._ask("stages")}


class CoordinatedSession(Session):
    """One worker; the graph, the batches and the weights belong to the coordinator."""

    def __init__(self, tf, job, context):
        self._version = tf.__version__
        self._root = context.root_address
        self._own_file = os.path.join(context.folder, context.name + "-batch.npy")
        self._own_archive = os.path.join(context.folder, context.name + "-state.npz")
        self._threads = job["threads"]
        self._at_once = start_server(tf, context, job["threads"])
        self._line = call(context)
        self._open: "queue.Queue[Any]" = queue.Queue()
        self._steps: "collections.deque[Any]" = collections.deque()
        self._newest: Any = None
        threading.Thread(target=self._read, name="answers", daemon=True).start()
        self._facts = self._answer().result()

    def step(self):
        if len(self._steps) == _STEPS_AHEAD:
            self._steps.popleft().result()
        self._newest = self._answer("step")
        self._steps.append(self._newest)

    def clock(self):
        return EventClock(self._mark, lambda earlier, later: later.at_s - earlier.at_s, self.wait)

    def _mark(self):
        """Return what will have the moment when the newest step is done, or has this moment where none is under way."""
        if self._newest is not None and self._newest.at_s is None:
            return self._newest
        now = _Answer(self._root)
        now.at_s = time.monotonic()
        return now

    def set_learning_rate(self, rate):
        self._answer([SET_RATE, rate])  # in its turn: steps that are under way keep the rate that they were asked with

    def outputs(self, inputs):
        """Return what the weights of the servers come to, by their running statistics: workers have none."""
        path = self._own_file
        numpy.save(path, channels_last(inputs))
        self._ask([EVALUATE, path])
        return channels_first(numpy.load(path, allow_pickle=False))

    def state(self):
        """Return all that the servers hold, in worker 0; the others hold nothing."""
        self.wait()
        path = self._own_archive
        if not self._ask([SAVE_STATE, path]):
            return {}
        with numpy.load(path, allow_pickle=False) as file:
            state = dict(file)
        os.remove(path)
        return state

    def set_state(self, arrays):
        numpy.savez(self._own_archive, **arrays)
        self._ask([SET_STATE, self._own_archive])
        os.remove(self._own_archive)

    def ablate(self):
        return CoordinatedAblation(self._ask)

    def batches_ahead(self):
        return self._ask("batches_ahead")

    def wait(self):
        """A step has finished at the word of the coordinator."""
        while self._steps:
            self._steps.popleft().result()

    def loss(self):
        return self._ask("loss")

    def loss_later(self):
        return self._newest.result  # its answer is the loss

    def staleness(self):
        counted = self._ask("staleness")
        return {int(updates): count for updates, count in counted.items()}

    def parameter_count(self):
        return self._ask("parameter_count")

    def output_shape(self):
        return self._ask("output_shape")

    def get_weights(self):
        """Return what the servers hold, which only the coordinator knows; it leaves it in the run folder."""
        path = self._ask("weights")
        with numpy.load(path, allow_pickle=False) as file:
            weights = dict(file)
        os.remove(path)
        return weights

    def facts(self):
        facts = {
            "framework_version": self._version,
            "device": "cpu",
            "threads": self._threads,
            "operations_at_once": self._at_once,
            "layout": "channels last",
            "clock": "host",
        }
        facts.update(self._facts)
        return facts

    def close(self):
        """Leave together with all other workers."""
        self._ask(LEAVE)

    def abort(self):
        """Leave without a word: the launcher ends the others."""

    def _ask(self, what):
        return self._answer(what).result()

    def _answer(self, what=None):
        """Ask for something and return its ``_Answer``; without ``what``, that of what is sent unasked."""
        answer = _Answer(self._root)
        self._open.put(answer)
        if what is not None:
            self._line.send(what)
        return answer

    def _read(self):
        """Note each answer when it comes; the coordinator answers in the order in which it was asked."""
        while True:
            message = self._line.receive()
            self._open.get().note(message)


class _Answer(object):
    """The coordinator's answer, once it has come; ``at_s`` is the host's monotonic time of that moment."""

    at_s = None

    def __init__(self, root):
        self._root = root
        self._message = None
        self._there = threading.Event()

    def note(self, message):
        """Keep the message; None when the coordinator has gone."""
        self.at_s = time.monotonic()
        self._message = message
        self._there.set()

    def result(self):
        """Wait for the answer and return its content.

        Raises RuntimeError when the coordinator has failed or gone.
        """
        self._there.wait()
        if self._message is None:
            raise RuntimeError("the coordinator at %s has gone; its records say why" % self._root)
        if "error" in self._message:
            raise RuntimeError(self._message["error"])
        return self._message["is"]
