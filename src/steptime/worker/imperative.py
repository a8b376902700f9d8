"""A session of a framework that computes each call when it is called, and the ablated step that follows from it.

A step is ``forward``, ``backward``, ``exchange`` and ``update``. A framework gives these four; the step, its stages and
its marks are put together here. A framework that compiles whole steps, or leaves them to an engine, derives from
``Session`` and ``AblatedStep`` themselves.
"""

import abc
import contextlib
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from steptime.worker.session import AblatedStep, Session

if TYPE_CHECKING:
    from steptime.worker.batches import Batches


class ImperativeSession(Session):
    """One worker's training, call by call.

    ``batches``
        The ``Batches`` of ``(inputs, targets)``.
    ``exchanges``
        Whether a step exchanges gradients with other workers.
    ``accumulation``
        Equal parts of a batch whose gradients a step adds up.
    """

    batches: "Batches"
    exchanges = False
    accumulation = 1

    @abc.abstractmethod
    def forward(self, inputs: Any, targets: Any) -> Any:
        """Return the loss of a batch, in the framework's own type, and keep what ``loss`` and ``output_shape`` need."""

    @abc.abstractmethod
    def backward(self, loss: Any) -> None:
        """Compute the gradients of ``loss`` in the place of earlier ones.

        A framework that exchanges gradients within its backward pass does so here, but not within ``alone``.
        """

    def exchange(self) -> None:
        """Average the gradients over all workers; does nothing where ``backward`` has done it."""

    @abc.abstractmethod
    def update(self) -> None:
        """Update the weights with the gradients that are there."""

    def drop_gradients(self) -> None:
        """Drop gradients with which nothing is updated, where ``backward`` would add to them otherwise."""

    def alone(self) -> "contextlib.AbstractContextManager[Any]":
        """Return a context in which ``forward`` and ``backward`` exchange nothing."""
        return contextlib.ExitStack()  # an empty context; nullcontext is newer than Python 3.6

    def communication(self) -> Callable[[], Any]:
        """Return a function that exchanges what a step exchanges, and computes nothing."""
        return self.exchange

    def step(self) -> None:
        inputs, targets = next(self.batches)
        if self.accumulation > 1:
            self.gather(inputs, targets)
        else:
            self.backward(self.forward(inputs, targets))
        if self.exchanges:
            self.exchange()
        self.update()

    def gather(self, inputs: Any, targets: Any) -> None:
        """Compute the mean gradients of ``accumulation`` equal parts of a batch, as ``backward`` does of a whole one.

        Raises NotImplementedError in frameworks that cannot.
        """
        raise NotImplementedError

    def batches_ahead(self) -> int:
        return self.batches.ahead

    def ablate(self) -> Optional[AblatedStep]:
        return ImperativeAblation(self)


class ImperativeAblation(AblatedStep):
    """The stages of an ``ImperativeSession``: each calls what its step calls, and leaves the rest out."""

    def __init__(self, session: ImperativeSession, exchanges: Optional[bool] = None, cuda: bool = False) -> None:
        """Take the steps of ``session`` apart.

        Args:
            session: an ``ImperativeSession``.
            exchanges: whether the exchange is a stage, where that is not whether the session has one.
            cuda: whether batches are copied to a CUDA device, for which the host's clock would have to wait at every
                mark: nothing is marked there.
        """
        self.session = session
        self.exchanges = session.exchanges if exchanges is None else exchanges
        self._cuda = cuda
        exchange = ("exchange",) if self.exchanges else ()
        self.marks = () if cuda else ("input", "forward", "backward") + exchange + ("update",)

    def stages(self) -> Dict[str, Callable[[], Any]]:
        session = self.session
        held = next(session.batches)

        def forward() -> None:
            with session.alone():
                session.forward(*held)

        def backward() -> None:
            with session.alone():
                session.backward(session.forward(*held))
            session.drop_gradients()

        def local() -> None:
            with session.alone():
                session.backward(session.forward(*held))
            session.update()

        def whole(batch: Any) -> None:
            session.backward(session.forward(*batch))
            if self.exchanges:
                session.exchange()
            session.update()

        stages = {"forward": forward, "backward": backward, "local": local, "input": lambda: next(session.batches)}
        if self._cuda:
            copies = session.batches.copies()
            stages["h2d"] = lambda: whole(next(copies))
        if self.exchanges:
            stages.update(exchange=lambda: whole(held), communication=session.communication())
        return stages

    def marked_step(self, mark: Callable[..., None]) -> None:
        session = self.session
        inputs, targets = next(session.batches)
        mark("input")
        loss = session.forward(inputs, targets)
        mark("forward")
        self.marked_gradients(loss, mark)
        session.update()
        mark("update")

    def marked_gradients(self, loss: Any, mark: Callable[..., None]) -> None:
        """Compute the gradients and exchange them, and mark the end of ``backward`` and ``exchange``."""
        self.session.backward(loss)
        mark("backward")
        if self.exchanges:
            self.session.exchange()
            mark("exchange")
