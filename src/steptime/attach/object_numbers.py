"""Numbers of a user's objects, of which none is given twice, as the address of an object that is gone is."""

from __future__ import annotations

import functools
import weakref
from typing import Any


class ObjectNumbers:
    """Numbers objects, and neither keeps one alive nor hashes or compares it, which may be code of the user's.

    What takes a weak reference has its number for life. A list or a range takes none: it has its number as long as
    somebody lives that is known to hold it, as its loader or an iterator of that.
    """

    def __init__(self) -> None:
        self.latest = 0
        # By the address of an object: its number, and by theirs who holds it, which it does itself if it can.
        self.known: dict[int, tuple[int, dict[int, weakref.ref[Any]]]] = {}

    def of(self, thing: Any, holder: Any = None) -> int:
        """Return the number of an object, which ``holder`` keeps alive; TypeError where neither takes a reference."""
        address = id(thing)
        known = self.known.get(address)
        if known is not None and (address in known[1] or id(holder) in known[1]):
            return known[0]
        try:
            keeper, kept = address, weakref.ref(thing, functools.partial(self._forget, address, address))
        except TypeError:
            keeper = id(holder)
            kept = weakref.ref(holder, functools.partial(self._forget, address, keeper))
        if known is None:
            self.latest += 1
            known = self.known[address] = self.latest, {}
        known[1][keeper] = kept
        return known[0]

    def _forget(self, address: int, keeper: int, _: Any) -> None:
        """Forget somebody that is gone, and with the last one the object: called before its address is free."""
        _, holders = self.known[address]
        del holders[keeper]
        if not holders:
            del self.known[address]


_numbers = ObjectNumbers()
number_of = _numbers.of
