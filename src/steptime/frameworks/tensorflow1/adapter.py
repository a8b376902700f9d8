"""Training in a graph of TensorFlow 1: alone, or with its parameter servers."""

import collections
from typing import Any

from steptime.libraries.tensorflow.startup import collect_garbage
from steptime.worker.framework import Framework, require_fp32
from steptime.worker.session import Session


def open_session(job, context):
    """Return a session of the strategy ``single``, ``ps_sync`` or ``ps_async``.

    Raises ValueError for a precision or a device that TensorFlow 1 does not have here, or a dataset that is not the
    job's.
    """
    require_fp32(job, "TensorFlow 1")
    from steptime.frameworks.tensorflow1.network import import_graph_mode

    return GraphSession(import_graph_mode(xla=job["options"].get("xla", False)), job, context)


def serve(job, context):
    """Be a server until all workers have left."""
    from steptime.frameworks.tensorflow1.cluster import serve_until_all_left
    from steptime.frameworks.tensorflow1.network import import_graph_mode

    return serve_until_all_left(import_graph_mode(), job, context)


class GraphSession(Session):
    """One worker's training; Python only runs the same part of the graph in every step."""

    def __init__(self, tf1, job, context):
        self._tf1 = tf1
        self._job = job
        tf1.set_random_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
        self._strategy = _strategy(job["strategy"])(tf1, job, context, lambda: _batches(job, context))
        self._session = self._strategy.open()
        self._strategy.network.read_through(self._session)
        self._strategy.batches.start(self._session)
        # Skips what Session.run does to find out anew in every step what it was asked for.
        self._whole_step = self._session.make_callable(self._strategy.fetches)
        tf1.get_default_graph().finalize()
        self._advance = self._advance_first
        self._results: Any = None
        self._taken = 0
        self._staleness: "collections.Counter[int]" = collections.Counter()

    def step(self):
        self._results = self._take(self._advance)
        if self._strategy.asynchronous:
            self._staleness[int(self._results[1])] += 1

    def _take(self, run):
        """Return what ``run`` returns, which takes the next batch."""
        try:
            results = run()
        except self._tf1.errors.OpError as error:
            self._strategy.batches.explain(error, self._taken)
            raise
        self._taken += 1
        return results

    def _advance_first(self):
        """Take the first step, and have the graph's many Python objects out of the garbage collector's way."""
        self._strategy.begin(self._session)
        results = self._whole_step()
        self._strategy.begun(self._session)
        self._advance = self._whole_step
        collect_garbage(for_good=True)
        return results

    def set_learning_rate(self, rate):
        self._strategy.learning.rate.set_in(self._session, rate)

    def outputs(self, inputs):
        return self._strategy.learning.evaluation.outputs(self._session, inputs)

    def state(self):
        """Return running statistics, and of worker 0 what all share; the masks of dropout begin anew."""
        return self._strategy.learning.variables.read(self._session)

    def set_state(self, arrays):
        self._strategy.learning.variables.set(self._session, arrays)
        self._strategy.agree_on_state(self._session)

    def ablate(self):
        from steptime.frameworks.tensorflow1.ablation import GraphAblation

        return GraphAblation(self._session, self._strategy, self._take)

    def batches_ahead(self):
        return self._strategy.batches.ahead

    def wait(self):
        """A step has finished when it returns."""

    def loss(self):
        return float(self._results[0])

    def staleness(self):
        if not self._strategy.asynchronous:
            return None
        counted, self._staleness = dict(self._staleness), collections.Counter()
        return counted

    def parameter_count(self):
        return self._strategy.network.parameter_count()

    def output_shape(self):
        return self._strategy.network.output_shape()

    def get_weights(self):
        return self._strategy.network.get_weights()

    def facts(self):
        from steptime.frameworks.tensorflow1.network import version_of

        facts = {
            "framework_version": version_of(self._tf1),
            "device": "cpu",
            "threads": self._job["threads"],
            "operations_at_once": 1,
            "layout": "channels last",
            "loader_threads": self._strategy.batches.threads,
        }
        facts.update(self._strategy.facts)
        return facts

    def close(self):
        self._strategy.close(self._session)

    def abort(self):
        """Leave without a word: servers and workers that wait for this one are ended by the launcher."""


def _strategy(name):
    from steptime.frameworks.tensorflow1.strategies import AsynchronousGraph, SingleGraph, SynchronousGraph

    return {"single": SingleGraph, "ps_sync": SynchronousGraph, "ps_async": AsynchronousGraph}[name]


def _batches(job, context):
    """Return this worker's batches, whose tensors lie in the default graph."""
    from steptime.frameworks.tensorflow1 import loader as loaders

    if job["loader"]["kind"] == "synthetic":
        batches: Any = loaders.GraphSyntheticBatches(job, context.rank)
    else:
        batches = loaders.GraphNativeBatches(job, context)
    if not job["ablated"]:
        return batches
    from steptime.frameworks.tensorflow1.ablation import HeldBatches

    return HeldBatches(batches)


def open_back_end(job, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.tensorflow1.collectives import PushPullBackEnd
    from steptime.frameworks.tensorflow1.network import import_graph_mode

    return PushPullBackEnd(import_graph_mode(), job, context)


FRAMEWORK = Framework(open_session, serve=serve, open_back_end=open_back_end, serve_back_end=serve)
