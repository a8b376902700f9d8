"""Training with TensorFlow 2 and Horovod: one worker without Horovod, or gradients added up by it."""

from steptime.libraries.tensorflow.session import TensorFlowSession
from steptime.libraries.tensorflow.startup import import_tensorflow
from steptime.worker.framework import Framework


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``.

    Raises RuntimeError when the workers do not find each other.
    """
    import horovod

    tf = import_tensorflow(job["threads"], "cpu", context.local_rank)
    tf.random.set_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
    if job["strategy"] == "allreduce":
        strategy = HorovodTraining(job, context)
    else:
        from steptime.libraries.tensorflow.training_step import SingleTraining

        strategy = SingleTraining(job)
    strategy.facts.update(framework_version=horovod.__version__, tensorflow=tf.__version__)
    return TensorFlowSession(tf, strategy, job, context)


class HorovodTraining(object):
    """Each gradient is an operation of Horovod in the graph, which waits for nothing but this gradient."""

    marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, job, context):
        from steptime.libraries.horovod.workers import HorovodWorkers
        from steptime.libraries.tensorflow.training_step import TensorFlowTraining, build_network

        self._workers = HorovodWorkers("tensorflow", context, job)
        self.network = build_network(job)
        combine = self._sum if context.workers > 1 else None
        self.training = TensorFlowTraining(self.network, job["optimizer"], combine, 1.0 / context.workers)
        self.leave = self._workers.leave
        self.facts = dict(self._workers.facts)

    def wrap(self, function):
        """Return ``function``, which needs nothing around it."""
        return function

    def _sum(self, gradients):
        """Return the sums of ``gradients`` over all workers; called when the step is compiled."""
        hvd = self._workers.hvd
        return [hvd.allreduce(each, op=hvd.Sum, name="gradient.%d" % index) for index, each in enumerate(gradients)]


FRAMEWORK = Framework(open_session)
