"""Results folders as the verbs that only read them open them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steptime.measurements.store import Store


def open_results(folder: Path) -> "Store":
    """Open a results folder, and warn where another user could have changed it.

    Raises StoreError where it is none, or cannot be read.
    """
    from steptime.cli.streams import warn
    from steptime.foreign_writers import foreign_hand_on
    from steptime.measurements.store import Store

    store = Store.open(folder)
    if said := foreign_hand_on(folder):
        warn([f"note: {said}, who could have changed these results"])
    return store
