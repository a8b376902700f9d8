"""What frameworks over TensorFlow 2 give to their tests: batches, live weights, and faults in the training step."""

from steptime.worker.weights import channels_first


def batches(job, context):
    """Return the batches of TensorFlow's loaders as numpy arrays."""
    from steptime.libraries.tensorflow.loader import open_tensorflow_batches

    place = "/CPU:0" if job["device"] == "cuda" else None
    own = open_tensorflow_batches(job, context.rank, context.workers, place)
    return ((channels_first(inputs.numpy()), targets.numpy()) for inputs, targets in own)


def weights(session):
    """Return the functions of the live weights of a ``TensorFlowSession``."""
    variables = session._strategy.network.variables
    return (
        lambda: [each.numpy().copy() for each in variables],
        lambda given: [each.assign(value) for each, value in zip(variables, given)],
    )


def freeze_last_layer(*_):
    """Set the gradients of the last layer to zero."""
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining

    backward = TensorFlowTraining.backward

    def frozen(self, inputs, targets):
        loss, gradients = backward(self, inputs, targets)
        return loss, list(gradients[:-2]) + [0.0 * each for each in gradients[-2:]]

    TensorFlowTraining.backward = frozen


def clip_apart(job, _):
    """Have each worker shorten its own gradient, or its share of the mean, before all are combined."""
    import tensorflow as tf

    from steptime.libraries.tensorflow.training_step import TensorFlowTraining

    most, combine = job["optimizer"].pop("clip_norm"), TensorFlowTraining.combine

    def shortened(self, gradients):
        own, _ = tf.clip_by_global_norm(gradients, most * self._share)
        return combine(self, own)

    TensorFlowTraining.combine = shortened


def keep_back(*_):
    """Keep the gradient of the last bias out of what workers combine."""
    from steptime.libraries.tensorflow.training_step import TensorFlowTraining

    combine = TensorFlowTraining.combine
    TensorFlowTraining.combine = lambda self, gradients: list(combine(self, gradients))[:-1] + [gradients[-1]]
