"""``python -m steptime`` is the same program as ``steptime``; it imports nothing before it can take a Ctrl-C."""

import os
import signal
import time
from types import FrameType


def main() -> None:
    """Run the program; a Ctrl-C before it has begun, or after its end, ends the process at once and silently."""
    began = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored, it stays so
        signal.signal(signal.SIGINT, _leave)
    from steptime.cli.app import main as program  # noqa: PLC0415 - it takes tenths of a second

    program(began)


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
