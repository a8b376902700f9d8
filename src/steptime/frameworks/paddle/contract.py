"""What PaddlePaddle gives to its tests."""

from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract


def _batches(job, context):
    from steptime.frameworks.paddle.loader import open_paddle_batches

    return ((inputs.numpy(), targets.numpy()) for inputs, targets in open_paddle_batches(job, context))


def _weights(session):
    parameters = [each for each in session.layer.parameters() if each.trainable]

    def put(given):
        for parameter, value in zip(parameters, given):
            parameter.set_value(value)

    return (lambda: [each.numpy().copy() for each in parameters]), put


def _freeze_last_layer(session, *_):
    """Update with gradients of zero in the last layer, whose weight and bias are the last parameters."""
    update, last = session.update, list(session.layer.parameters())[-2:]

    def stopped():
        for parameter in last:
            parameter.grad.zero_()
        update()

    session.update = stopped


def _keep_back(*_):
    from steptime.frameworks.paddle import session

    make = session.data_parallel

    def ignoring(layer, options):
        list(layer.parameters())[-1].no_sync = True
        return make(layer, options)

    session.data_parallel = ignoring


def _clip_apart(job, _):
    """Have each worker multiply its loss, and with it its gradient, by what shortens its own gradient."""
    import paddle

    from steptime.frameworks.paddle.session import PaddleSession

    most, backward = job["optimizer"].pop("clip_norm"), PaddleSession.backward

    def shortened(self, loss):
        parameters = [each for each in self.layer.parameters() if each.trainable]
        slopes = paddle.grad(loss, parameters, retain_graph=True)
        length = sum(float((slope * slope).sum()) for slope in slopes) ** 0.5
        backward(self, loss * min(1.0, most / length))

    PaddleSession.backward = shortened


CONTRACT = Contract(
    _batches,
    _weights,
    faults={KEPT_GRADIENT: _keep_back, CLIPPED_APART: _clip_apart},
    session_faults={FROZEN_LAYER: _freeze_last_layer},
)
