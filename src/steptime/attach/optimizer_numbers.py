"""Which optimizer an update is by, also where a script makes one anew for each."""

from __future__ import annotations

import weakref
from typing import Any

from . import process

# Arrays by whose shapes optimizers are known to be alike.
FEW = 4
# Optimizers that took the place of others, from which on it is said.
OFTEN = 8
ANEW = "a new optimizer ({name}) took the place of one that was gone {often} times: each begins without momentum"


class OptimizerNumbers:
    """Numbers the optimizers; a new one that takes the place of one that is gone, for such weights, has its number."""

    def __init__(self) -> None:
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.forms: list[tuple[Any, ...]] = []
        self.replaced = 0

    def of(self, optimizer: Any) -> int:
        """Return the number of an optimizer."""
        number = self.numbers.get(optimizer)
        if number is None:
            weights = [each for group in optimizer.param_groups for each in group["params"]]
            form = (type(optimizer).__name__, len(weights), *(tuple(each.shape) for each in weights[:FEW]))
            living = set(self.numbers.values())
            gone = (index for index, other in enumerate(self.forms) if other == form and index not in living)
            number = self.numbers[optimizer] = next(gone, len(self.forms))
            if number == len(self.forms):
                self.forms.append(form)
            else:
                self._replace(type(optimizer).__name__)
        return number

    def living(self, number: int) -> dict[int, weakref.ref[Any]]:
        """Return the living optimizers with a number, by their addresses."""
        return {id(each): weakref.ref(each) for each, known in self.numbers.items() if known == number}

    def _replace(self, name: str) -> None:
        self.replaced += 1
        if self.replaced == OFTEN:
            process.note(ANEW.format(name=name, often=OFTEN))
