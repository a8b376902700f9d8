"""Requests to loaders, and which of them an evaluation made that reads the batches of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batch_amount import BatchAmount


class LoaderRequest:
    """A request to a loader: by whom it was answered, and whether a batch came; ``region`` names its time.

    ``duration`` is without the regions inside of it.
    """

    __slots__ = ("amount", "begin", "delivered", "duration", "end", "read_until", "region", "source")

    def __init__(self, source: int, timed: tuple[int, int, int], region: str, amount: BatchAmount | None) -> None:
        self.source = source
        self.amount = amount
        self.begin, self.end, self.duration = timed
        self.region = region
        self.delivered = region == "input"
        self.read_until = 0  # the end of the last forward without gradient before the next request


class EvaluatedReads:
    """Finds batches of the training's own loader that an evaluation read.

    It reads one after the other without gradient. As many before every step are the step's own, as of a loader that
    gives pairs.
    """

    def __init__(self) -> None:
        self.usual: int | None = None

    def count(self, requests: list[LoaderRequest], *, begun: bool) -> int:
        """Return how many of ``requests``, before the one that is trained on, belong to an evaluation.

        ``begun`` is whether a step came before.
        """
        last = max((index for index, request in enumerate(requests) if request.delivered), default=0)
        read = [index for index, request in enumerate(requests[:last]) if request.read_until]
        usual = self.usual or 0
        if begun:
            self.usual = len(read) if self.usual is None else min(usual, len(read))
        if len(read) <= usual:
            return 0
        end = read[-1] + 1
        while requests[end].region == "epoch":
            end += 1
        return end

    def last(self, requests: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return those that an evaluation made, where none of ``requests`` is trained on."""
        read = [request for request in requests if request.read_until]
        return read if len(read) > (self.usual or 0) else []
