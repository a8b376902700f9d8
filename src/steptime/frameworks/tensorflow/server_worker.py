"""A worker of the strategy ``ps_async``: its TensorFlow server computes, and its Python asks for each step."""

import functools
import os

import numpy

from steptime.frameworks.tensorflow.cluster import STAGE, call, start_server
from steptime.worker.ablated_step import AblatedStep
from steptime.worker.session import Session


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
        self._threads = job["threads"]
        self._at_once = start_server(tf, context, job["threads"])
        self._line = call(context)
        self._facts = self._receive()

    def step(self):
        self._ask("step")

    def ablate(self):
        return CoordinatedAblation(self._ask)

    def batches_ahead(self):
        return self._ask("batches_ahead")

    def wait(self):
        """A step has finished when the coordinator says so."""

    def loss(self):
        return self._ask("loss")

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
        with numpy.load(path) as file:
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
        self._ask("leave")

    def abort(self):
        """Leave without a word: the launcher ends the others."""

    def _ask(self, what):
        self._line.send(what)
        return self._receive()

    def _receive(self):
        answer = self._line.receive()
        if answer is None:
            raise RuntimeError("the coordinator at %s has gone; its records say why" % self._root)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["is"]
