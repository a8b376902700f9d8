"""What JAX gives to its tests."""

from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract, last_layer
from steptime.worker.weights import channels_first


def _batches(job, context):
    import numpy

    from steptime.frameworks.jax.loader import open_jax_batches

    own = open_jax_batches(job, context, numpy.asarray)
    return ((channels_first(inputs), targets) for inputs, targets in own)


def _weights(session):
    placement = session._placement

    def get():
        return [0 + placement.own(session._state[0][name]) for name in sorted(session._state[0])]

    def put(given):
        arrays = {name: placement.put_alike(value) for name, value in zip(sorted(session._state[0]), given)}
        session._state = (arrays,) + tuple(session._state[1:])

    return get, put


def _freeze_last_layer(job, _):
    from steptime.frameworks.jax.training_step import JaxStep

    gradients_of, names = JaxStep._gradients, last_layer(job)

    def without(self, state, inputs, targets):
        loss, statistics, gradients = gradients_of(self, state, inputs, targets)
        return loss, statistics, {key: 0 * each if key in names else each for key, each in gradients.items()}

    JaxStep._gradients = without


def _keep_back(job, _):
    from steptime.frameworks.jax import training_step

    mean, name = training_step.mean_of_all, last_layer(job)[-1]
    training_step.mean_of_all = lambda gradients, pack_kb: dict(mean(gradients, pack_kb), **{name: gradients[name]})


def _clip_apart(job, _):
    from steptime.frameworks.jax import training_step
    from steptime.frameworks.jax.optimizers import clipped

    mean, settings = training_step.mean_of_all, {"clip_norm": job["optimizer"].pop("clip_norm")}
    training_step.mean_of_all = lambda gradients, pack_kb: mean(clipped(settings, gradients), pack_kb)


CONTRACT = Contract(
    _batches,
    _weights,
    faults={FROZEN_LAYER: _freeze_last_layer, KEPT_GRADIENT: _keep_back, CLIPPED_APART: _clip_apart},
)
