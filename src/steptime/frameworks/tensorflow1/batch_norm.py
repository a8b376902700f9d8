"""Batch normalisation in a graph of TensorFlow 1, whose fused kernel keeps no running statistics by itself."""

import tensorflow

tf1 = tensorflow.compat.v1


def batch_norm(layer, variables, running):
    """Return the layer as a function of its input; appends the updates of the running statistics to ``running``.

    They are local to the worker, as in the other frameworks, and cost no communication. ``tf.layers`` and
    ``tf.nn.fused_batch_norm`` are not used: these raise an epsilon of 1e-5 to 1.001e-5.
    """
    attributes = layer["attributes"]
    features = layer["input_shapes"][0][0]
    mean = _statistic(layer["name"] + ".running_mean", tf1.zeros(features))
    variance = _statistic(layer["name"] + ".running_variance", tf1.ones(features))

    def apply(values):
        flat = values.shape.rank == 2  # noqa: PLR2004 - batch, features
        result = tf1.raw_ops.FusedBatchNormV3(
            x=values[:, None, None, :] if flat else values,
            scale=variables["weight"],
            offset=variables["bias"],
            mean=[],
            variance=[],
            epsilon=attributes["epsilon"],
        )
        for kept, newest in ((mean, result.batch_mean), (variance, result.batch_variance)):
            running.append(kept.assign_sub((kept - newest) * attributes["momentum"], read_value=False))
        return result.y[:, 0, 0, :] if flat else result.y

    return apply


def _statistic(name, start):
    return tf1.Variable(
        start, name=name, trainable=False, use_resource=True, collections=[tf1.GraphKeys.LOCAL_VARIABLES]
    )
