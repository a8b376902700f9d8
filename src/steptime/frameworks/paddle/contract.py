"""What PaddlePaddle gives to its tests."""

from steptime.worker.contract import FROZEN_LAYER, KEPT_GRADIENT, Contract


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


CONTRACT = Contract(
    _batches, _weights, faults={KEPT_GRADIENT: _keep_back}, session_faults={FROZEN_LAYER: _freeze_last_layer}
)
