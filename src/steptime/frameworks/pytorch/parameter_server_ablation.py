"""The ablated step of a worker of parameter servers, which never computes an update itself."""

import time

from steptime.libraries.torch.ablation import TorchAblation


class ParameterServerAblation(TorchAblation):
    """The stages of a worker that sends its gradients to servers, which update."""

    update_marks = ("input", "forward", "backward", "exchange")

    def __init__(self, strategy, sizes):
        """Take the steps of ``strategy`` apart, which sends rows of gradients of these ``sizes`` in bytes."""
        super(ParameterServerAblation, self).__init__(strategy)
        self._sizes = sizes
        self.pieces = []

    def updates(self):
        return {"backward": self.backward, "exchange": self.strategy.update}

    def backward(self, loss):
        """Compute gradients, and set them to zero as training does, since the next ones are added to them."""
        loss.backward()
        self.strategy.forget()

    def communication(self):
        return self.strategy.send

    def marked_update(self, loss, mark):
        loss.backward()
        self.strategy.clip()
        mark("backward")
        ready, done = time.monotonic(), {}

        def watch(server, answer):
            done[server] = time.monotonic()
            return answer.value()

        self.strategy.send(watch)
        mark("exchange")
        self.strategy.forget()
        for server, size in enumerate(self._sizes):
            self.pieces.append(["server %d" % server, size, ready, done[server]])
