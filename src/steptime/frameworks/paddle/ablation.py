"""The ablated step in PaddlePaddle, whose DataParallel exchanges within the backward pass."""

import time

from steptime.worker.imperative import ImperativeAblation


class PaddleAblation(ImperativeAblation):
    """The backward pass ends when the last gradient reaches its hook, ahead of the exchange of the last bucket."""

    def __init__(self, session):
        super(PaddleAblation, self).__init__(session)
        self._last_gradient_s = None
        if self.exchanges:
            for parameter in session.parallel.parameters():
                parameter.register_hook(self._note)

    def _note(self, _):
        """Called with each gradient, before it goes into its bucket; returns None, so that it stays as it is."""
        self._last_gradient_s = time.monotonic()

    def marked_gradients(self, loss, mark):
        self.session.backward(loss)
        mark("backward", self._last_gradient_s)
        if self.exchanges:
            mark("exchange")
