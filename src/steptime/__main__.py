"""``python -m steptime`` is the same program as ``steptime``; it imports nothing before it can take a Ctrl-C."""

import gc
import os
import signal
import time
from types import FrameType

_GARBAGE = (200_000, 20, 100)
"""After how many new objects Python looks for cycles, which records have none of: by default that is a fifth of the
time in which 100,000 are read, and a tenth of that of a short report."""


def main() -> None:
    """Run the program; a Ctrl-C before it has begun, or after its end, ends the process at once and silently."""
    began = time.monotonic()
    gc.set_threshold(*_GARBAGE)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored, it stays so
        signal.signal(signal.SIGINT, _leave)
    from steptime.cli.app import main as program  # noqa: PLC0415 - it takes tenths of a second

    program(began)


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
