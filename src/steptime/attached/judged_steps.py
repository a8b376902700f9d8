"""By which steps it is judged whom ranks wait for: those that exchange, but for one whose waiting outweighs all others.

Ranks that average their weights now and then exchange in few steps, the first of which may make connections and load
what it needs: waiting of a kind that does not come again.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptime.attached.exchange import Exchange

_OUTWEIGHS = 0.5
"""Of all waiting, more than which one step has alone."""


@dataclass(frozen=True)
class JudgedSteps:
    """Steps of an exchange, by what ranks do in them."""

    usual: Exchange
    """Without the step that outweighs all others."""
    judged: Exchange
    """Of these, the steps in which the ranks exchange."""
    alone: int | None
    """The number of the step that outweighs them; None without one."""
    alone_share: float
    """Of all waiting, that lies in it."""
    is_first: bool
    """Whether the ranks exchange in none before it."""

    @property
    def is_rare(self) -> bool:
        """Whether ranks exchange in some steps and not in others."""
        return len(self.judged.numbers) < len(self.usual.numbers)


def judged_steps(exchange: Exchange) -> JudgedSteps:
    """Return the steps by which ranks are judged; all that exchange where no step outweighs the others."""
    waiting = exchange.waiting_s.sum(axis=0)
    most = int(waiting.argmax())
    share = float(waiting[most] / waiting.sum()) if waiting.sum() > 0.0 else 0.0
    outweighs = share > _OUTWEIGHS and int(exchange.met.sum()) > 1
    steps = np.ones(len(waiting), dtype=np.bool_)
    steps[most] = not outweighs
    usual = _of(exchange, steps)
    return JudgedSteps(
        usual=usual,
        judged=_of(usual, usual.met),
        alone=exchange.numbers[most] if outweighs else None,
        alone_share=share if outweighs else 0.0,
        is_first=not exchange.met[:most].any(),
    )


def _of(exchange: Exchange, steps: NDArray[np.bool_]) -> Exchange:
    return replace(
        exchange,
        numbers=[number for number, kept in zip(exchange.numbers, steps, strict=True) if kept],
        waiting_s=exchange.waiting_s[:, steps],
        exposed_s=exchange.exposed_s[:, steps],
        caused_s=exchange.caused_s[:, steps],
        within_backward_s=exchange.within_backward_s[:, steps],
        met=exchange.met[steps],
    )
