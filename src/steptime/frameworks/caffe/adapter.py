"""Training in BVLC Caffe, alone or with gradients summed over MPI."""

import os

import numpy

from steptime.worker.framework import Framework, require_fp32
from steptime.worker.session import Session
from steptime.worker.usage import compute_threads
from steptime.worker.weights import initial_weights

# Caffe's log starts with its import; what it says about errors, it says on the way to its death.
_ERRORS_ONLY = "2"


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises ValueError for what Caffe cannot do, and RuntimeError when MPI does not see the workers that were started.
    """
    require_fp32(job, "Caffe")
    os.environ.setdefault("GLOG_minloglevel", _ERRORS_ONLY)
    from steptime.frameworks.caffe.loader import open_loader

    loader = open_loader(job, context)
    try:
        return CaffeSession(job, context, loader)
    except BaseException:
        loader.close()
        raise


class CaffeSession(Session):
    """One worker's solver and loader, and what sums its gradients if there are several workers."""

    def __init__(self, job, context, loader):
        from steptime.frameworks.caffe.network import WorkloadSolver

        self._loader = loader
        together = job["strategy"] == "allreduce"
        share = 1.0 / context.workers if together else 1.0
        seed = int(numpy.random.RandomState([job["seed"], 104729, context.rank]).randint(2**31 - 1))
        self._solver = WorkloadSolver(
            job["workload"], job["batch_per_worker"], job["optimizer"], share, seed, job["label_smoothing"]
        )
        self._solver.set_weights(initial_weights(job["workload"]["layers"], job["seed"]))
        self._solver.feed_from(loader.inputs, loader.targets)
        self._reduction = None
        if together:
            from steptime.frameworks.caffe.collectives import open_reduction

            self._reduction = open_reduction(job["options"]["reduction"], self._solver, context)

    def step(self):
        self._loader.fill()
        self._solver.step()

    def set_learning_rate(self, rate):
        self._solver.set_learning_rate(rate)

    def outputs(self, inputs):
        return self._solver.outputs(inputs)

    def state(self):
        return self._solver.state()

    def set_state(self, arrays):
        self._solver.set_state(arrays)

    def ablate(self):
        from steptime.frameworks.caffe.ablation import CaffeAblation

        return CaffeAblation(self._solver, self._loader, self._reduction)

    def batches_ahead(self):
        return self._loader.ahead

    def wait(self):
        """Return at once: Caffe has finished when a step returns."""

    def loss(self):
        return self._solver.loss()

    def parameter_count(self):
        return self._solver.parameter_count()

    def output_shape(self):
        return self._solver.output_shape()

    def get_weights(self):
        return self._solver.get_weights()

    def facts(self):
        import caffe

        facts = {
            "framework_version": caffe.__version__,
            "numpy": numpy.__version__,
            "device": "cpu",
            "threads": compute_threads(),
        }
        if self._reduction is not None:
            facts.update(self._reduction.facts())
        return facts

    def close(self):
        self._loader.close()
        self._solver.close()
        if self._reduction is not None:
            self._reduction.close()

    def abort(self):
        """Leave MPI alone: finalising waits for the others; that this process ends is what makes mpiexec end them."""
        self._loader.close()
        self._solver.close()


FRAMEWORK = Framework(open_session)
