"""The step of a parameter server's worker in stages."""

import time

from steptime.worker.sessions.torch_stages import Stages


class ErrandStages(Stages):
    """The stages of a worker that sends its gradients to servers, which update."""

    marks = ("input", "forward", "backward", "exchange")

    def __init__(self, strategy, sizes):
        """Take the steps of ``strategy`` apart, which sends rows of gradients of these ``sizes`` in bytes."""
        super(ErrandStages, self).__init__(strategy)
        self._sizes = sizes
        self._transfers = []

    def rungs(self):
        return {"backward": self.backward, "exchange": self.strategy.update}

    def backward(self, loss):
        """Compute gradients, and set them to zero as training does, since the next ones are added to them."""
        loss.backward()
        self.strategy.forget()

    def communication(self):
        return self.strategy.send

    def marked(self, loss, mark):
        loss.backward()
        mark("backward")
        ready, done = time.monotonic(), {}

        def watch(server, answer):
            done[server] = time.monotonic()
            return answer.value()

        self.strategy.send(watch)
        mark("exchange")
        self.strategy.forget()
        for server, size in enumerate(self._sizes):
            self._transfers.append(["server %d" % server, size, ready, done[server]])

    def transfers(self):
        seen, self._transfers = self._transfers, []
        return seen
