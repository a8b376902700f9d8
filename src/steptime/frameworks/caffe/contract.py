"""What Caffe gives to its tests."""

import itertools

from steptime.worker.framework import FROZEN_LAYER, KEPT_GRADIENT, Contract, last_layer


def _batches(job, context):
    from steptime.frameworks.caffe.loader import open_loader

    loader = open_loader(job, context)
    slots = len(loader.targets) // job["batch_per_worker"]
    for slot in itertools.cycle(range(slots)):
        loader.fill()
        inputs = loader.inputs.reshape((slots, -1) + loader.inputs.shape[1:])
        yield inputs[slot].copy(), loader.targets.reshape(slots, -1)[slot].copy()


def _weights(session):
    solver = session._solver
    names = list(solver.get_weights())
    return (
        lambda: [solver.get_weights()[name].copy() for name in names],
        lambda given: solver.set_weights(dict(zip(names, given))),
    )


def _freeze_last_layer(job, _):
    from steptime.frameworks.caffe.network import WorkloadSolver

    hang, names = WorkloadSolver.__init__, last_layer(job)

    def hung(self, *arguments, **settings):
        hang(self, *arguments, **settings)
        self.on_gradients(lambda: [gradient.fill(0) for name, gradient in self.gradients() if name in names])

    WorkloadSolver.__init__ = hung


def _keep_back(*_):
    from steptime.frameworks.caffe.collectives import ReductionAfterBackward

    finish = ReductionAfterBackward.finish

    def partly(self):
        last = self._pairs[-1][0]
        own = last.copy()
        finish(self)
        last[...] = own * self.world.Get_size()  # of which each worker has computed its share

    ReductionAfterBackward.finish = partly


CONTRACT = Contract(_batches, _weights, faults={FROZEN_LAYER: _freeze_last_layer, KEPT_GRADIENT: _keep_back})
