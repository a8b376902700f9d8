"""The ablated step in Chainer, which notes when each gradient has its mean."""

import time
from typing import Any

from steptime.worker.imperative import ImperativeAblation


class ChainerAblation(ImperativeAblation):
    """With double buffering, or where one worker trains alone, nothing is exchanged."""

    session: Any

    def __init__(self, session, exchanges, cuda):
        super(ChainerAblation, self).__init__(session, exchanges, cuda)
        self._transfers = []

    def marked_gradients(self, loss, mark):
        if not self.exchanges:
            super(ChainerAblation, self).marked_gradients(loss, mark)
            return
        self.session.backward(loss)
        mark("backward")
        self._exchange()
        mark("exchange")

    def _exchange(self):
        """Average the gradients, and note when each has its mean: the communicator sends one after the other."""
        communicator, chain = self.session.communicator, self.session.chain
        average = communicator._multi_node_mean  # noqa: SLF001
        self.session.ready_gradients()
        names = {id(parameter.grad): name for name, parameter in chain.named()}
        ready = time.monotonic()

        def noted(given, gradient):
            average(given, gradient)
            self._transfers.append([names[id(gradient)], gradient.nbytes, ready, time.monotonic()])

        communicator._multi_node_mean = noted  # noqa: SLF001 - it has no other place to look at a single gradient
        try:
            communicator.multi_node_mean_grad(chain)
        finally:
            del communicator._multi_node_mean  # noqa: SLF001

    def transfers(self):
        found, self._transfers = self._transfers, []
        return found if self.exchanges else None
