"""One worker's training loop in TensorFlow 2, whatever the strategy.

Variables as numpy arrays and back, of every replica that a process computes for.
"""

import os
from typing import Any

from steptime.libraries.tensorflow.startup import ONEDNN, collect_garbage, import_tensorflow
from steptime.worker.clock import HostClock, WaitingClock
from steptime.worker.session import Session
from steptime.worker.weights import channels_first, channels_last


def read_variables(variables):
    """Return ``{NAME/REPLICA: array}`` of ``{name: variable}``."""
    return {
        "%s/%d" % (name, replica): part.numpy()
        for name, variable in variables.items()
        for replica, part in enumerate(_parts(variable))
    }


def set_variables(variables, arrays):
    """Give variables the values that ``read_variables`` returned."""
    for name, variable in variables.items():
        for replica, part in enumerate(_parts(variable)):
            part.assign(arrays["%s/%d" % (name, replica)])


def _parts(variable):
    """Return the variables that a strategy's variable consists of in this process; of another, itself."""
    return getattr(variable, "values", None) or (variable,)


def open_own_reference(job, context):
    """Return the session of the one process that the check of a user's model asks."""
    import_tensorflow(job, context.local_rank)
    from steptime.libraries.tensorflow.own_module import KerasOwnReference
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining

    return KerasOwnReference(job, context, TensorFlowTraining)


_STEPS_AHEAD = 16
"""How many steps the host may be ahead of a GPU: as many as keep it busy, and no more than its queue holds."""


class TensorFlowSession(Session):
    """One worker's training; Python only calls one compiled function per step.

    ``newest``
        What the last step returned: its loss, or those of all workers of a process.
    """

    def __init__(self, tf, strategy, job, context, batches=None):
        """Build everything around what a strategy is.

        Args:
            tf: TensorFlow, as ``import_tensorflow`` gives it.
            strategy: has what ``SingleTraining`` has.
            job: the job.
            context: of this worker.
            batches: of the process; None opens this worker's own.
        """
        from steptime.libraries.tensorflow.loader import open_tensorflow_batches

        self._tf = tf
        self._job = job
        self._strategy = strategy
        self._workers = context.workers
        device = "/GPU:0" if job["device"] == "cuda" else None
        self._own = "own" in job["workload"]
        if self._own:
            batches = strategy.network.batches
        self._batches = batches or open_tensorflow_batches(job, context.rank, context.workers, device)
        self._advance = self._batches.feed(strategy.wrap(strategy.training.step))
        self._run = self._advance_first
        self._evaluate: Any = None
        self.newest: Any = None
        self._one = tf.constant(1.0)
        self._last_gpu = "/GPU:%d" % (len(tf.config.get_visible_devices("GPU")) - 1) if device else None

    def step(self):
        self.newest = self._run()

    def _advance_first(self):
        """Take the first step, for which TensorFlow builds the graph."""
        loss = self._advance()
        self._run = self._advance
        collect_garbage()
        return loss

    def set_learning_rate(self, rate):
        if self._strategy.training.set_rate(rate):
            self._advance = self._batches.feed(self._strategy.wrap(self._strategy.training.step))
            self._run = self._advance_first

    def outputs(self, inputs):
        return channels_first(self.evaluate(self._tf.constant(channels_last(inputs))).numpy())

    def evaluate(self, inputs):
        """Return the outputs for inputs that are channels last, as the strategy has both."""
        if self._evaluate is None:
            evaluate = self._strategy.wrap(self._strategy.network.evaluate)
            self._evaluate = self._tf.function(evaluate, autograph=False)
        return self._evaluate(inputs)

    def state(self):
        """Return weights, running statistics and the optimizer's state; the masks of dropout begin anew."""
        return read_variables(self._kept())

    def set_state(self, arrays):
        set_variables(self._kept(), arrays)

    def _kept(self):
        network = self._strategy.network
        return dict(network.named_variables, **dict(network.statistics, **self._strategy.training.kept))

    def ablate(self):
        from steptime.libraries.tensorflow.training_step import TensorFlowAblation

        # A GPU computes after the operation of the host that would note the time; a user's batch may be of any form.
        cuda = self._job["device"] == "cuda"
        marks = () if cuda or self._own else self._strategy.marks
        return TensorFlowAblation(self._strategy, self._batches, marks, several=self._workers > 1, cuda=cuda)

    def batches_ahead(self):
        return self._batches.ahead

    def wait(self):
        """On a CPU the function has finished when it returns; a GPU may still be at work."""
        if self._job["device"] == "cuda":
            self._tf.test.experimental.sync_devices()

    def clock(self):
        if self._job["device"] == "cpu":
            return HostClock(self.wait)
        return WaitingClock(self._number_behind, lambda number: number.numpy(), self.wait, _STEPS_AHEAD)

    def _number_behind(self):
        """Return a number that the last of this process's GPUs computes behind all that was issued.

        TensorFlow has no events, and a tensor that was copied to the host once is not copied again.
        """
        tf = self._tf
        losses = tf.nest.flatten(self.newest, expand_composites=True)
        loss = self._one if losses[-1] is None else losses[-1]
        with tf.device(self._last_gpu):
            return tf.raw_ops.AddV2(x=loss, y=loss)

    def device_peak_bytes(self):
        if self._last_gpu is None:
            return None
        return int(self._tf.config.experimental.get_memory_info(self._last_gpu.lstrip("/"))["peak"])

    def loss(self):
        return float(self.newest.numpy())

    def loss_later(self):
        newest = self.newest
        return lambda: float(newest.numpy())

    def parameter_count(self):
        return self._strategy.network.parameter_count()

    def output_shape(self):
        return [self._job["batch_per_worker"]] + list(self._strategy.network.output_shape()[1:])

    def get_weights(self):
        return self._strategy.network.get_weights()

    def facts(self):
        tf = self._tf
        gpus = tf.config.get_visible_devices("GPU")
        device = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else "cpu"
        facts = {
            "framework_version": tf.__version__,
            "device": device,
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "operations_at_once": tf.config.threading.get_inter_op_parallelism_threads(),
            "layout": "channels last",
            "onednn": os.environ.get(ONEDNN, "default"),
            "loader_threads": self._batches.threads,
            "clock": "threads that wait for a number of each step" if gpus else "host",
        }
        facts.update(self._strategy.facts)
        if self._own:
            facts["own"] = self._strategy.network.facts
        return facts

    def probe_precision(self):
        return self._strategy.network.probe()

    def close(self):
        self._strategy.leave()

    def abort(self):
        """Leave without a word: the others learn it from TensorFlow within a second."""
