"""Losses behind some of the steps that are timed, read when all are over.

Between two steps, at few of them only, a session hands out what reads its loss later.
"""

from typing import Any, Callable, Iterator, List, Optional, Tuple

from steptime.worker.session import Session

_FIRST_KEPT = (1, 8, 24, 64)
_GROWTH = 2.5
"""Of one kept step over the one before, behind the first."""


def kept_steps() -> Iterator[int]:
    """Yield the steps behind which losses are kept, without end: 1, 8, 24, 64, 160, 400, 1000 and so on.

    They are counted from the first of the warm-up, so that launches with other numbers of steps have most in common.
    """
    for step in _FIRST_KEPT:
        yield step
    while True:
        step = int(step * _GROWTH)
        yield step


class KeptLosses(object):
    """Takes steps, and keeps what reads the losses of some: nothing else is done between any two steps."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept = kept_steps()
        self._next = next(self._kept)
        self._taken = 0
        self._readers: List[Tuple[int, Callable[[], float]]] = []

    def take(self, steps: int, tick: Optional[Callable[[], Any]] = None) -> None:
        """Take so many steps, and call ``tick`` behind each."""
        step, end = self._session.step, self._taken + steps
        while self._taken < end:
            stop = min(end, self._next)
            if tick is None:
                for _ in range(stop - self._taken):
                    step()
            else:
                for _ in range(stop - self._taken):
                    step()
                    tick()
            self._taken = stop
            if stop == self._next:
                reader = self._session.loss_later()
                if reader is not None:
                    self._readers.append((stop, reader))
                self._next = next(self._kept)

    def read(self) -> List[Tuple[int, float]]:
        """Return ``[(step, loss)]``, steps counted from 1."""
        return [(step, reader()) for step, reader in self._readers]
