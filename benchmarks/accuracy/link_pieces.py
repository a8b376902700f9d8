"""A link whose times follow another line from some message size on, as an interconnect for the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect, Switch


@dataclass(frozen=True)
class Piece:
    """Messages of at least a size: ``start_s + per_byte_s n``."""

    size: float
    start_s: float
    per_byte_s: float


def interconnect_of(
    found: Sequence[Piece], steps: float, volume: float, algorithm: str = "ring", *, rendezvous: float = np.inf
) -> Interconnect:
    """Return the interconnect on which an operation takes as long as its pieces say.

    Args:
        found: by ascending size.
        steps: of the operation by its textbook algorithm, between the workers that were measured.
        volume: bytes on the busiest link per byte of a message, likewise.
        algorithm: whose steps and volume these are.
        rendezvous: bytes from which messages wait for their receivers.
    """
    links = [
        Link(
            rate=volume / piece.per_byte_s if piece.per_byte_s > 0 else np.inf,
            latency=piece.start_s / steps,
            rendezvous=rendezvous,
        )
        for piece in found
    ]
    switches = [Switch(piece.size, link, algorithm) for piece, link in zip(found[1:], links[1:], strict=True)]
    return Interconnect(links[0], algorithm, switches=tuple(switches))
