"""Caffe's solvers as a job names its optimizer, and their state as arrays.

Caffe reads and writes files only, all of them in a temporary folder of this user's alone that a call leaves empty.
"""

import contextlib
import os
import shutil
import tempfile
import weakref

import caffe
import numpy
from caffe.proto import caffe_pb2
from google.protobuf import text_format

_ITERATIONS, _HISTORY = "solver/iterations", "solver/history/%d"


def _momentum(settings):
    return {"momentum": settings["momentum"]}


def _adam(settings):
    return {"momentum": settings["beta1"], "momentum2": settings["beta2"], "delta": settings["epsilon"]}


_SOLVERS = {
    "sgd": ("SGD", _momentum),  # v = momentum * v + rate * gradient, w = w - v
    "nesterov": ("Nesterov", _momentum),
    "adam": ("Adam", _adam),
}
"""By the optimizer's name: Caffe's type, and the settings of ``SolverParameter`` that it has."""


class JobSolver(object):
    """Caffe's solver of a net, with the files through which its state comes and goes.

    ``solver`` is Caffe's own.
    """

    def __init__(self, net, optimizer, seed):
        """Make the solver.

        Args:
            net: a ``NetParameter``.
            optimizer: the job's ``optimizer``.
            seed: of this worker's dropout masks.

        Raises ValueError for an optimizer that Caffe does not have.
        """
        if optimizer["name"] not in _SOLVERS:
            raise ValueError("Caffe has no optimizer %r, only %s" % (optimizer["name"], ", ".join(sorted(_SOLVERS))))
        kind, settings = _SOLVERS[optimizer["name"]]
        # Made now, since Caffe takes the prefix of its files only when the solver is made, and kept: whoever has seen
        # its name cannot take its place.
        self._folder = tempfile.mkdtemp(prefix="steptime-caffe-")
        self.close = weakref.finalize(self, shutil.rmtree, self._folder, True)
        """Remove the folder; the solver has no state from then on."""
        message = caffe_pb2.SolverParameter(
            type=kind,
            base_lr=optimizer["learning_rate"],
            lr_policy="fixed",
            weight_decay=optimizer["weight_decay"],
            random_seed=seed,
            display=0,
            snapshot_after_train=False,
            snapshot_prefix=os.path.join(self._folder, "state"),
            solver_mode=caffe_pb2.SolverParameter.CPU,
            **settings(optimizer),
        )
        message.net_param.CopyFrom(net)
        with text_file(message) as path:
            self.solver = getattr(caffe, kind + "Solver")(path)

    def set_learning_rate(self, rate):
        """Let the solver update with another rate from now on."""
        self.solver.param.base_lr = rate

    def state(self):
        """Return what the solver keeps from step to step, as ``{name: array}``."""
        with self._files() as folder:
            self.solver.snapshot()  # the weights too, for which there is no other call
            (name,) = [name for name in os.listdir(folder) if name.endswith(".solverstate")]
            with open(os.path.join(folder, name), "rb") as file:
                saved = caffe_pb2.SolverState.FromString(file.read())
        found = {_HISTORY % index: numpy.array(blob.data, numpy.float32) for index, blob in enumerate(saved.history)}
        found[_ITERATIONS] = numpy.array(saved.iter)
        return found

    def set_state(self, arrays, shapes):
        """Take over what ``state`` returned; ``arrays`` may hold more, ``shapes`` are those of the parameters."""
        saved = caffe_pb2.SolverState(iter=int(arrays[_ITERATIONS]), current_step=0)
        index = 0
        while _HISTORY % index in arrays:
            blob = saved.history.add()
            blob.shape.dim.extend(shapes[index % len(shapes)])
            blob.data.extend(arrays[_HISTORY % index].tolist())
            index += 1
        with self._files() as folder:
            path = os.path.join(folder, "state.solverstate")
            with open(path, "wb") as file:
                file.write(saved.SerializeToString())
            self.solver.restore(path)

    @contextlib.contextmanager
    def _files(self):
        """Give the folder of the snapshots, and leave it empty."""
        try:
            yield self._folder
        finally:
            for name in os.listdir(self._folder):
                os.unlink(os.path.join(self._folder, name))


@contextlib.contextmanager
def text_file(message):
    """Write a message of Caffe's into a file, and remove it after use; gives the path."""
    handle, path = tempfile.mkstemp(suffix=".prototxt")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text_format.MessageToString(message))
        yield path
    finally:
        os.unlink(path)


@contextlib.contextmanager
def matrix_file(matrix):
    """Write a matrix in the form that layers of Caffe's read, and remove it after use; gives the path."""
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend((1, 1) + matrix.shape)
    blob.data.extend(matrix.ravel().tolist())
    handle, path = tempfile.mkstemp(suffix=".binaryproto")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(blob.SerializeToString())
        yield path
    finally:
        os.unlink(path)
