"""What the reference gives to its tests."""

from typing import Any

from steptime.worker.framework import CLIPPED_APART, EARLY_UPDATE, FROZEN_LAYER, KEPT_GRADIENT, Contract, last_layer


def _batches(job, context):
    from steptime.frameworks.reference.loader import open_reference_batches

    return open_reference_batches(job, context.rank, context.workers, lambda inputs, targets: (inputs, targets))


def _weights(session):
    values = session._network.values
    return (lambda: [values.copy()]), (lambda given: values.__setitem__(slice(None), given[0]))


def _freeze_last_layer(job, _):
    from steptime.frameworks.reference.network import ReferenceNetwork

    compute, names = ReferenceNetwork.backpropagate, last_layer(job)

    def stopped(self, inputs, targets):
        loss = compute(self, inputs, targets)
        for name in names:
            self.gradients[name][...] = 0
        return loss

    ReferenceNetwork.backpropagate = stopped


def _connect_by(changed):
    """Have sessions, which average by the number of workers, connect by ``changed(connect)``."""
    from steptime.frameworks.reference import collectives

    collectives.connect = changed(collectives.connect)


def _keep_back(job, _):
    size = 1
    for axis in job["workload"]["layers"][-1]["parameters"][-1]["shape"]:
        size *= axis

    def keeping(connect):
        def connected(context):
            average = connect(context)

            def partly(vector):
                own = vector[-size:].copy()
                average(vector)
                vector[-size:] = own

            planted: Any = partly
            planted.close = average.close
            return planted

        return connected

    _connect_by(keeping)


def _exchange_nothing(job, _):
    from steptime.frameworks.reference.collectives import NoAverage

    job["strategy"] = "single"
    _connect_by(lambda _: lambda _: NoAverage())


def _clip_apart(job, _):
    most = job["optimizer"].pop("clip_norm")

    def clipping(connect):
        def connected(context):
            average = connect(context)

            def shortened(vector):
                vector *= min(1.0, most / float((vector.astype("float64") ** 2).sum()) ** 0.5)
                average(vector)

            planted: Any = shortened
            planted.close = average.close
            return planted

        return connected

    _connect_by(clipping)


CONTRACT = Contract(
    _batches,
    _weights,
    faults={
        FROZEN_LAYER: _freeze_last_layer,
        KEPT_GRADIENT: _keep_back,
        EARLY_UPDATE: _exchange_nothing,
        CLIPPED_APART: _clip_apart,
    },
)
