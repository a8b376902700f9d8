"""What Chainer gives to its tests."""

from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract


def _batches(job, context):
    import chainer

    from steptime.frameworks.chainer.loader import open_chainer_batches, start_helper_server

    start_helper_server(job["loader"])
    return open_chainer_batches(job, context, chainer.get_device("@numpy"))


def _weights(session):
    arrays = [each.array for each in session.chain.params()]

    def put(given):
        for array, value in zip(arrays, given):
            array[...] = value

    return (lambda: [each.copy() for each in arrays]), put


def _freeze_last_layer(session, *_):
    for parameter in list(session.chain.links())[-1].params():
        parameter.update_rule.enabled = False


def _keep_back(session, *_):
    communicator = session.communicator
    mean, last = communicator.multi_node_mean_grad, max(session.chain.namedparams())[1]

    def all_but_one(chain, *more):
        own = last.grad.copy()
        mean(chain, *more)
        last.grad[...] = own

    communicator.multi_node_mean_grad = all_but_one


def _clip_apart(session, job, _):
    import chainer

    session._optimizer.remove_hook("GradientClipping")
    shorten, mean = chainer.optimizer_hooks.GradientClipping(job["optimizer"]["clip_norm"]), session.communicator
    of_all = mean.multi_node_mean_grad

    def shortened(chain, *more):
        shorten(session._optimizer)
        of_all(chain, *more)

    mean.multi_node_mean_grad = shortened


CONTRACT = Contract(
    _batches,
    _weights,
    session_faults={FROZEN_LAYER: _freeze_last_layer, KEPT_GRADIENT: _keep_back, CLIPPED_APART: _clip_apart},
)
