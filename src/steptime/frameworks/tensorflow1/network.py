"""A workload's layers in a graph of TensorFlow 1, or of a later TensorFlow in the mode that is compatible with it.

``import_graph_mode`` is where TensorFlow enters a process.
"""

import os
from typing import Any

from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.startup import before_import

_XLA_ON_PROCESSORS = "--tf_xla_cpu_global_jit"


def import_graph_mode(*, xla=False):
    """Return TensorFlow's interface of version 1, in graph mode whatever its version.

    Args:
        xla: whether XLA may compile for processors too, where it does so only when told.
    """
    before_import()
    if xla:
        os.environ["TF_XLA_FLAGS"] = (os.environ.get("TF_XLA_FLAGS", "") + " " + _XLA_ON_PROCESSORS).strip()
    import tensorflow

    graph_mode = tensorflow.compat.v1
    graph_mode.logging.set_verbosity(graph_mode.logging.ERROR)
    graph_mode.disable_v2_behavior()
    return graph_mode


def version_of(tensorflow):
    """Return what the library is: a later TensorFlow that plays version 1 is not version 1."""
    return tensorflow.VERSION if tensorflow.VERSION.startswith("1.") else "%s (compat.v1)" % tensorflow.VERSION


def session_settings(tensorflow, threads, filters=(), *, xla=False):
    """Return the settings of a worker's session.

    Args:
        tensorflow: from ``import_graph_mode``.
        threads: of one operation; operations run one after the other, because a second one beside the first would be
            a second thread.
        filters: of the devices that the session may use.
        xla: whether XLA compiles clusters of operations.
    """
    settings = tensorflow.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=1,
        device_count={"GPU": 0},
        device_filters=list(filters),
    )
    if xla:
        settings.graph_options.optimizer_options.global_jit_level = tensorflow.OptimizerOptions.ON_1
    return settings


class GraphBatchNorm(object):
    """Batch normalisation, whose running ``statistics`` are ``{name: variable}``.

    They are local to the worker, as in the other frameworks, and cost no communication. ``tf.layers`` and
    ``tf.nn.fused_batch_norm`` are not used: these raise an epsilon of 1e-5 to 1.001e-5.
    """

    def __init__(self, layer, variables, running):
        """Make the statistics; the updates of them are appended to ``running`` where the layer is called."""
        import tensorflow

        self._tf1 = tf1 = tensorflow.compat.v1
        attributes = layer["attributes"]
        features = layer["input_shapes"][0][0]
        own = {"trainable": False, "use_resource": True, "collections": [tf1.GraphKeys.LOCAL_VARIABLES]}
        self._mean = tf1.Variable(tf1.zeros(features), name=layer["name"] + ".running_mean", **own)
        self._variance = tf1.Variable(tf1.ones(features), name=layer["name"] + ".running_variance", **own)
        self._fixed = {"scale": variables["weight"], "offset": variables["bias"], "epsilon": attributes["epsilon"]}
        self._newest = attributes["momentum"]
        self._running = running
        self.statistics = {layer["name"] + ".mean": self._mean, layer["name"] + ".variance": self._variance}

    def __call__(self, values):
        result, outputs = self._normalised(values, mean=[], variance=[])
        for kept, newest in ((self._mean, result.batch_mean), (self._variance, result.batch_variance)):
            self._running.append(kept.assign_sub((kept - newest) * self._newest, read_value=False))
        return outputs

    def evaluate(self, values):
        _, outputs = self._normalised(values, mean=self._mean, variance=self._variance, is_training=False)
        return outputs

    def _normalised(self, values, **how):
        flat = values.shape.rank == 2  # noqa: PLR2004 - batch, features
        result = self._tf1.raw_ops.FusedBatchNormV3(
            x=values[:, None, None, :] if flat else values, **dict(self._fixed, **how)
        )
        return result, result.y[:, 0, 0, :] if flat else result.y


class GraphNetwork(TensorFlowNetwork):
    """A workload whose variables and loss lie in the graph that is now the default one.

    Initial weights are fed and not written into the graph, which may hold 2 GiB and is copied several times.
    """

    def __init__(self, workload, weights, where=None, kept_at=None, smoothing=0.0):
        """Make the variables.

        Args:
            workload: its JSON.
            weights: ``{name: array}`` to start from, in the workload's layout.
            where: a device or device function for the trainable variables; None leaves them where all else is.
            kept_at: the device on which a variable is kept within a step, once read; None reads it in place.
            smoothing: the share of each target that is spread over all classes in training.
        """
        self._where = where
        self._kept_at = kept_at
        self._starts = {}
        self.running = []
        """Assignments of running statistics, to be run with every step."""
        super(GraphNetwork, self).__init__(workload, weights, smoothing=smoothing)
        self._reads = [variable.read_value() for variable in self.variables]
        self._session: Any = None

    def _makers(self):
        from steptime.libraries.tensorflow.layers import LAYERS

        return dict(LAYERS, batch_norm=lambda layer, own: GraphBatchNorm(layer, own, self.running))

    def _variable(self, start, name):
        tf1 = self._tf.compat.v1
        with tf1.device(self._where):
            fed = tf1.placeholder(tf1.float32, start.shape)
            variable = tf1.Variable(fed, name=name, use_resource=True, caching_device=self._kept_at)
        self._starts[fed] = start
        return variable

    def _values(self):
        return self._session.run(self._reads)

    def initialize(self, session, also=()):
        """Give the variables their first values, together with the operations ``also``."""
        session.run([variable.initializer for variable in self.variables] + list(also), self._starts)
        self.forget()

    def forget(self):
        """Let go of the initial weights."""
        self._starts = {}

    def read_through(self, session):
        """Read weights through ``session`` from now on."""
        self._session = session
