"""Training in CNTK, alone or with its distributed learners over MPI."""

import os
import sys
import warnings

import numpy

from steptime.worker.communication import MIB
from steptime.worker.framework import Framework, require_fp32
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights

_WITH_STATE = ("single", "allreduce")
"""Not 1-bit SGD, which holds what is yet to be sent, nor block momentum, which holds the last block's weights."""


def open_session(job, context):
    """Return a session of any strategy of the manifest.

    Raises ValueError for a precision or a device that CNTK does not have here and for layers that it cannot express,
    and RuntimeError when MPI does not see the workers that were started.
    """
    require_fp32(job, "CNTK")
    if "OMPI_COMM_WORLD_RANK" not in os.environ and os.path.exists(os.path.join(sys.prefix, "lib", "libmpi.so.40")):
        # mpiexec passes the library the place of its own files; without mpiexec nothing does.
        os.environ["OPAL_PREFIX"] = sys.prefix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is not Ubuntu 16.04 and has no GPU
        import cntk
    cntk.device.try_set_default_device(cntk.device.cpu())
    cntk.cntk_py.set_max_num_cputhreads(job["threads"])
    if "pack_mb" in job["options"]:
        cntk.cntk_py.set_mpipack_threshold(int(job["options"]["pack_mb"] * MIB))
    return CntkSession(cntk, job, context)


class CntkSession(Session):
    """One worker's function, trainer and loader."""

    def __init__(self, cntk, job, context):
        from steptime.frameworks.cntk.learners import distributed_learner, local_learner
        from steptime.frameworks.cntk.loader import open_cntk_batches
        from steptime.frameworks.cntk.network import WorkloadFunction

        self._cntk = cntk
        self._batch = job["batch_per_worker"]
        weights = initial_weights(job["workload"]["layers"], job["seed"])
        dropout_seed = 1 + 1000 * (job["seed"] * context.workers + context.rank)
        self._function = function = WorkloadFunction(job["workload"], weights, self._batch, dropout_seed)
        self._strategy, self._workers = job["strategy"], context.workers
        self._distributed = self._strategy != "single"
        self._learner = local_learner(cntk, function.parameters, job["optimizer"])
        if self._distributed:
            self._learner = distributed_learner(cntk, self._learner, job, context)
        self._trainer = cntk.Trainer(None, function.loss, [self._learner])
        self._device = cntk.device.cpu()
        self._fetched = {}
        self._batches = open_cntk_batches(job, context)
        self._optimizer = job["optimizer"]

    def step(self):
        self._train(*next(self._batches))

    def _train(self, inputs, targets):
        function = self._function
        arguments = {function.features: inputs}
        if function.labels is not None:
            arguments[function.labels] = targets
        # CNTK cannot resize a buffer on which somebody still holds a view.
        self._fetched = fetched = {function.loss.output: None}
        # Trainer's own method of this name would turn what is fetched into numpy in every step. The loss that the
        # trainer remembers is the average of all workers.
        self._cntk.cntk_py.Trainer.train_minibatch(self._trainer, arguments, False, fetched, self._device)

    def set_learning_rate(self, rate):
        from steptime.frameworks.cntk.learners import set_learning_rate

        set_learning_rate(self._cntk, self._learner, rate)

    def outputs(self, inputs):
        return self._function.outputs(inputs)

    def state(self):
        """Return None if a distributed learner holds more between steps than the local one."""
        if self._strategy not in _WITH_STATE:
            return None
        from steptime.frameworks.cntk.learners import learner_state

        return dict(self._function.get_state(), learner=learner_state(self._learner))

    def set_state(self, arrays):
        from steptime.frameworks.cntk.learners import set_learner_state

        self._function.set_state(arrays)
        set_learner_state(self._cntk, self._learner, arrays["learner"])

    def ablate(self):
        from steptime.frameworks.cntk.ablation import CntkAblation
        from steptime.frameworks.cntk.learners import local_learner

        # A distributed learner keeps the state of the learner that it was given; the stages get one of their own.
        learner = self._learner
        if self._distributed:
            learner = local_learner(self._cntk, self._function.parameters, self._optimizer)
        several = self._workers > 1
        # The other strategies exchange something else than gradients as they are.
        communicator = self._cntk.distributed.mpi_communicator() if several and self._strategy == "allreduce" else None
        return CntkAblation(
            self._function,
            learner,
            self._batches,
            self._train if several else None,
            communicator,
            distributed=self._distributed,
        )

    def batches_ahead(self):
        return self._batches.ahead

    def wait(self):
        """Return at once: CNTK on the CPU has finished when a step returns."""

    def loss(self):
        (value,) = self._fetched.values()
        return float(numpy.mean(value.data().to_ndarray()))

    def parameter_count(self):
        return sum(int(numpy.prod(parameter.shape)) for parameter in self._trainer.loss_function.parameters)

    def output_shape(self):
        return [self._batch] + list(self._function.output.shape)

    def get_weights(self):
        return self._function.get_weights()

    def facts(self):
        return {
            "framework_version": self._cntk.__version__,
            "numpy": numpy.__version__,
            "device": "cpu",
            "threads": self._cntk.cntk_py.get_max_num_cputhreads(),
            "pack_mb": self._cntk.cntk_py.get_mpipack_threshold() / float(MIB),
        }

    def close(self):
        self._batches.close()
        if self._distributed:
            self._cntk.distributed.Communicator.finalize()  # a rank that ends without it counts as a failed one

    def abort(self):
        """Leave MPI alone: finalising waits for the others; that this process ends is what makes mpiexec end them."""
        self._batches.close()


FRAMEWORK = Framework(open_session)
