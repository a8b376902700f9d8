"""Training with TensorFlow 2 and Horovod: one worker without Horovod, or gradients added up by it."""

from typing import Any, Tuple

from steptime.libraries.tensorflow.session import TensorFlowSession, open_own_reference
from steptime.libraries.tensorflow.startup import import_tensorflow
from steptime.worker.framework import Framework
from steptime.worker.process_context import micro_batches


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    import horovod

    if "own_reference" in job:
        return open_own_reference(job, context)
    tf = import_tensorflow(job, context.local_rank)
    tf.random.set_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
    if job["strategy"] == "allreduce":
        strategy: Any = HorovodTraining(job, context)
    else:
        from steptime.libraries.tensorflow.training_step import SingleTraining

        strategy = SingleTraining(job, context)
    strategy.facts.update(framework_version=horovod.__version__, tensorflow=tf.__version__)
    return TensorFlowSession(tf, strategy, job, context)


class HorovodTraining(object):
    """Each gradient, or each group of them, is an operation of Horovod in the graph, which waits for nothing else."""

    marks: Tuple[str, ...] = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, job, context):
        from steptime.libraries.horovod.workers import HorovodWorkers
        from steptime.libraries.tensorflow.training_step import TensorFlowTraining, build_network

        self._workers = HorovodWorkers("tensorflow", context, job)
        self.network = build_network(job, context)
        options = job["options"]
        self._groups = options["groups"]
        self._in_loss = options["average"] == "loss"
        combine = self._combine if context.workers > 1 else None
        share = 1.0 / context.workers if self._in_loss else 1.0
        xla = options["xla"]
        accumulation = micro_batches(job)
        self.training = TensorFlowTraining(
            self.network, job["optimizer"], combine, share, accumulation=accumulation, xla=xla
        )
        if xla:
            self.marks = ()  # XLA cannot tell the time
        self.leave = self._workers.leave
        self.facts = dict(self._workers.facts, **{name: options[name] for name in ("groups", "average", "xla")})

    def wrap(self, function):
        """Return ``function``, which needs nothing around it."""
        return function

    def _combine(self, gradients):
        """Return the means of ``gradients`` over all workers, or sums of shares; called when the step is compiled."""
        hvd = self._workers.hvd
        how = hvd.Sum if self._in_loss else hvd.Average
        if not self._groups:
            return [hvd.allreduce(each, op=how, name="gradient.%d" % index) for index, each in enumerate(gradients)]
        size = -(-len(gradients) // self._groups)
        combined = []
        for start in range(0, len(gradients), size):
            part = gradients[start : start + size]
            combined += hvd.grouped_allreduce(part, op=how, name="gradients.%d" % start)
        return combined


FRAMEWORK = Framework(open_session)
