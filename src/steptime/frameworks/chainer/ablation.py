"""The ablated step in Chainer: the calls of a training step, with stages left out."""

import time

from steptime.worker.ablated_step import AblatedStep


class ChainerAblation(AblatedStep):
    """Without a communicator there is no exchange; on a CUDA device nothing is marked."""

    def __init__(self, chain, optimizer, communicator, batches, ready_gradients, *, cuda):  # noqa: PLR0913 - a session's parts
        self._chain = chain
        self._optimizer = optimizer
        self._communicator = communicator
        self._batches = batches
        self._ready_gradients = ready_gradients
        self._transfers = []
        self._cuda = cuda
        exchange = ("exchange",) if communicator is not None else ()
        # On a device, the host's clock would have to wait for it at every mark.
        self.marks = () if cuda else ("input", "forward", "backward") + exchange + ("update",)

    def stages(self):
        chain, optimizer, communicator = self._chain, self._optimizer, self._communicator
        held = next(self._batches)

        def forward():
            return chain(*held)

        def backward():
            loss = chain(*held)
            chain.cleargrads()
            loss.backward()

        def local():
            backward()
            optimizer.update()

        def exchange():
            backward()
            self._ready_gradients()
            communicator.multi_node_mean_grad(chain)
            optimizer.update()

        def h2d():
            inputs, targets = next(copies)
            loss = chain(inputs, targets)
            chain.cleargrads()
            loss.backward()
            if communicator is not None:
                self._ready_gradients()
                communicator.multi_node_mean_grad(chain)
            optimizer.update()

        stages = {"forward": forward, "backward": backward, "local": local, "input": lambda: next(self._batches)}
        if self._cuda:
            copies = self._batches.copies()
            stages["h2d"] = h2d
        if communicator is not None:
            stages.update(exchange=exchange, communication=lambda: communicator.multi_node_mean_grad(chain))
        return stages

    def marked_step(self, mark):
        inputs, targets = next(self._batches)
        mark("input")
        loss = self._chain(inputs, targets)
        mark("forward")
        self._chain.cleargrads()
        loss.backward()
        mark("backward")
        if self._communicator is not None:
            self._exchange()
            mark("exchange")
        self._optimizer.update()
        mark("update")

    def _exchange(self):
        """Average the gradients, and note when each has its mean: the communicator sends one after the other."""
        self._ready_gradients()
        communicator, average = self._communicator, self._communicator._multi_node_mean  # noqa: SLF001
        names = {id(parameter.grad): name for name, parameter in self._chain.named()}
        ready = time.monotonic()

        def noted(given, gradient):
            average(given, gradient)
            self._transfers.append([names[id(gradient)], gradient.nbytes, ready, time.monotonic()])

        communicator._multi_node_mean = noted  # noqa: SLF001 - it has no other place to look at a single gradient
        try:
            communicator.multi_node_mean_grad(self._chain)
        finally:
            del communicator._multi_node_mean  # noqa: SLF001

    def transfers(self):
        found, self._transfers = self._transfers, []
        return found if self._communicator is not None else None
