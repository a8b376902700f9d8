"""The step of numpy_ring with stages taken away."""

from steptime.worker.ablated_step import AblatedStep


class RingAblation(AblatedStep):
    """Each stage calls what ``RingSession.step`` calls, and leaves the rest out."""

    marks = ("input", "backward", "exchange", "update")

    def __init__(self, session):
        self._session = session

    def stages(self):
        session = self._session
        inputs, targets = next(session.batches)

        def forward():
            session.network.forward(inputs, targets)

        def backward():
            session.compute(inputs, targets)

        def local():
            backward()
            session.update()

        def exchange():
            backward()
            session.average()
            session.update()

        stages = {"forward": forward, "backward": backward, "local": local, "input": lambda: next(session.batches)}
        if session.workers > 1:
            stages.update(exchange=exchange, communication=session.average)
        return stages

    def marked_step(self, mark):
        session = self._session
        inputs, targets = next(session.batches)
        mark("input")
        session.compute(inputs, targets)
        mark("backward")
        session.average()
        mark("exchange")
        session.update()
        mark("update")
