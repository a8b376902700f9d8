"""The delay switch: the program ``packet_relay``, started and ended, for kernels that cannot delay packets."""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from steptime.errors import LaunchError
from steptime.launchers.emulation.network import BITS, INTERFACE, NAMESPACES, address, batch, namespace
from steptime.launchers.emulation.owner import Owner

_PROGRAM = str(Path(__file__).with_name("packet_relay.py"))
_DEVICE = Path("/dev/net/tun")
_MTU = 9000
"""Large packets keep their number, and with it the switch's work, small."""
_START_S = 60.0


def can_switch() -> bool:
    """Whether this process may make interfaces of its own."""
    return os.access(_DEVICE, os.R_OK | os.W_OK)


@contextlib.contextmanager
def running_switch(owner: Owner, rates: Sequence[float | None], delay_s: float) -> Iterator[subprocess.Popen[str]]:
    """Make a namespace for each host, join all by a switch, and end it when the launch is over.

    Args:
        owner: whose they are.
        rates: bits per second of each host's link; None if nothing limits it.
        delay_s: from one host to another.

    Raises LaunchError when the switch does not start.
    """
    count = len(rates)
    batch("ip", [f"netns add {namespace(owner, index)}" for index in range(count)])
    links = [
        {"namespace": str(NAMESPACES / namespace(owner, index)), "address": address(index), "bits_per_s": rates[index]}
        for index in range(count)
    ]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as switch:
        try:
            _begin(switch, {"interface": INTERFACE, "delay_s": delay_s, "links": links})
            for index in range(count):
                lines = [
                    "link set lo up",
                    f"link set {INTERFACE} mtu {_MTU} addrgenmode none",
                    f"addr add {address(index)}/{BITS} dev {INTERFACE}",
                    f"link set {INTERFACE} up",
                ]
                batch("ip", lines, namespace(owner, index))
            yield switch
        finally:
            switch.kill()


def _begin(switch: subprocess.Popen[str], plan: dict[str, object]) -> None:
    assert switch.stdin is not None  # noqa: S101 - it was asked for; so were the others
    assert switch.stdout is not None  # noqa: S101
    assert switch.stderr is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        switch.stdin.write(json.dumps(plan) + "\n")
        switch.stdin.flush()
    ready, _, _ = select.select([switch.stdout], [], [], _START_S)
    if not ready or not switch.stdout.readline():
        switch.kill()
        message = f"the switch that delays packets did not start: {' '.join(switch.stderr.read().split())[-300:]}"
        raise LaunchError(message)
