"""The framework's own adapter, whose session does between its steps what ``job["script"]`` says.

An entry of the script is ``[number of steps taken, action, argument]``; ``_ACTIONS`` says what there is. Arrays that an
action gets from the session go to ``seen-RANK.npz`` in the run folder.
"""

import importlib
from pathlib import Path

import numpy as np


class _Script:
    """The script of one worker."""

    def __init__(self, session, job, context):
        self._session, self._job, self._context = session, job, context
        self._taken = 0
        self._seen = {}
        self._step = session.step

    def step(self):
        for after, action, argument in self._job["script"]:
            if after == self._taken:
                _ACTIONS[action](self, argument)
        self._taken += 1
        self._step()

    def set_learning_rate(self, rate):
        self._session.set_learning_rate(rate)

    def outputs(self, name):
        """Keep the outputs for the first held-out batch, after an evaluation of another one."""
        for number in (1, 0):
            outputs = self._session.outputs(self._batch(number))
        self._keep({name: outputs})

    def weights(self, name):
        self._session.wait()
        weights = self._session.get_weights() or {}
        self._keep({f"{name}/{key}": array for key, array in weights.items()})

    def state(self, name):
        self._session.wait()
        state = self._session.state()
        if state is not None:
            np.savez(str(self._path(self._context.folder, name)), **state)

    def set_state(self, path):
        with np.load(str(self._path(Path(path).parent, Path(path).name)), allow_pickle=False) as file:
            self._session.set_state(dict(file))

    def _path(self, folder, name):
        return Path(folder) / f"{name}-{self._context.rank}.npz"

    def _batch(self, number):
        stream = np.random.RandomState([self._job["seed"], 31, self._context.rank, number])
        shape = [self._job["batch_per_worker"]] + self._job["workload"]["input_shape"]
        return stream.standard_normal(shape).astype(np.float32)

    def _keep(self, arrays):
        self._seen.update({key: np.array(array) for key, array in arrays.items()})
        np.savez(str(self._path(self._context.folder, "seen")), **self._seen)


_ACTIONS = {
    "set_learning_rate": _Script.set_learning_rate,
    "outputs": _Script.outputs,
    "weights": _Script.weights,
    "state": _Script.state,
    "set_state": _Script.set_state,
}


def _open_session(job, context):
    session = _REAL.open_session(job, context)
    session.step = _Script(session, job, context).step
    return session


_REAL = importlib.import_module(__name__.rpartition(".")[0] + ".scripted").FRAMEWORK
FRAMEWORK = _REAL._replace(open_session=_open_session)
