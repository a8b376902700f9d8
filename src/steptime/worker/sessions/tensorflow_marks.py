"""Steps of TensorFlow 2 whose graph tells when each of its parts was computed."""

import time

from steptime.worker.builders.tensorflow_stamps import Stamps
from steptime.worker.sessions.graph_building import clear_away


class StampedSteps(object):
    """The same step as the session's, with an operation behind each gradient that tells the time."""

    def __init__(self, strategy, batches):
        """Prepare the function; its graph is built in the first step.

        Args:
            strategy: as in ``TensorFlowSession``.
            batches: of this worker.
        """
        stamp = Stamps()
        training = strategy.training
        self._marks = strategy.marks
        self._run = batches.feed(strategy.wrap(lambda inputs, targets: training.stamped(inputs, targets, stamp)))
        self._pieces = [(variable.name, 4 * variable.shape.num_elements()) for variable in strategy.network.variables]
        self._seen = None

    def step(self, mark):
        """Run one step, tell ``mark`` of its phases, and return the loss."""
        loss, moments = self._run()
        end = time.monotonic()
        moments = (moments.numpy() + (end - time.time())).tolist()
        count = len(self._pieces)
        ready, done = moments[2 : 2 + count], moments[2 + count :]
        phases = {"input": moments[0], "forward": moments[1], "backward": max(ready), "exchange": max(done)}
        latest = moments[0]
        for name in self._marks:
            latest = max(latest, min(phases.get(name, end), end))
            mark(name, latest)
        if self._seen is None:
            clear_away()
            self._seen = []
        if "exchange" in self._marks:
            # A moment may be noted a little late, when many operations are ready at once.
            self._seen += [[name, size, min(at), at[1]] for (name, size), at in zip(self._pieces, zip(ready, done))]
        return loss

    def transfers(self):
        """Return each gradient's journey since the last call, and forget it; None where nothing is exchanged."""
        seen, self._seen = sorted(self._seen or (), key=lambda piece: piece[2]), []
        return seen if "exchange" in self._marks else None
