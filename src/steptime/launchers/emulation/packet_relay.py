"""``python packet_relay.py``: joins emulated hosts with a delay, where the kernel cannot delay packets itself.

Its input is a line of JSON. It makes an interface in every host's network, reports them, and from then on carries
packets from one to the other: each is booked on the link of the host that it comes from and, a delay later, on the
link of the host that it goes to, and handed over when both links would be through with it.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import socket
import struct
import sys
import time

_NEW_NETWORK = 0x40000000
_MAKE_INTERFACE, _IP_PACKETS, _BARE = 0x400454CA, 0x0001, 0x1000
_TIMER_SLACK, _END_SIGNAL = 29, 1
_PRIORITY = 50
_AHEAD_S = 2e-3
"""How far a link may be booked before its host has to wait."""
_LARGEST_BYTES = 65536
_DESTINATION = slice(16, 20)
"""Of a packet's header."""


class RelayLink:
    """A host's interface as seen from the switch, and until when its two directions are booked."""

    def __init__(self, namespace: str, name: str, bits_per_s: float | None) -> None:
        """Make the interface ``name`` within ``namespace``; raises OSError when the kernel refuses."""
        with open(namespace, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than all the rest
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), f"setns was refused: {namespace}")
        self.descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.descriptor, _MAKE_INTERFACE, struct.pack("16sH22x", name.encode(), _IP_PACKETS | _BARE))
        self._seconds_per_byte = 8 / bits_per_s if bits_per_s else 0.0
        self.up_until = 0.0
        self._down_until = 0.0

    def book_up(self, now: float, count: int) -> float:
        """Return when ``count`` bytes from this host have reached the switch."""
        self.up_until = max(self.up_until, now) + count * self._seconds_per_byte
        return self.up_until

    def book_down(self, now: float, count: int) -> float:
        """Return when ``count`` bytes have reached this host from the switch."""
        self._down_until = max(self._down_until, now) + count * self._seconds_per_byte
        return self._down_until


def carry(links: dict[bytes, RelayLink], delay_s: float) -> None:
    """Carry packets between ``links``, which are by their hosts' addresses, without end."""
    by_descriptor = {link.descriptor: link for link in links.values()}
    waiting: list[tuple[float, int, RelayLink, bytes]] = []
    order = 0
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, link, packet = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # an interface that is down, or full: a packet is lost, as on any link
                os.write(link.descriptor, packet)
        free = [each.descriptor for each in links.values() if each.up_until <= now + _AHEAD_S]
        moments = [each.up_until - _AHEAD_S for each in links.values() if each.up_until > now + _AHEAD_S]
        moments += [waiting[0][0]] if waiting else []
        ready, _, _ = select.select(free, [], [], max(0.0, min(moments) - now) if moments else None)
        for descriptor in ready:
            source = by_descriptor[descriptor]
            with contextlib.suppress(OSError):
                packet = os.read(descriptor, _LARGEST_BYTES)
                target = links.get(packet[_DESTINATION])
                if target:
                    through = source.book_up(time.monotonic(), len(packet)) + delay_s
                    order += 1
                    heapq.heappush(waiting, (target.book_down(through, len(packet)), order, target, packet))


def main() -> None:
    """Make the interfaces, say so, and carry until the launcher ends this process, or dies."""
    libc = ctypes.CDLL(None)
    libc.prctl(_END_SIGNAL, 9, 0, 0, 0)
    libc.prctl(_TIMER_SLACK, 1, 0, 0, 0)
    with contextlib.suppress(OSError):  # late now and then, where real-time priority is not allowed
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    plan = json.loads(sys.stdin.readline())
    links = {
        socket.inet_aton(each["address"]): RelayLink(each["namespace"], plan["interface"], each["bits_per_s"])
        for each in plan["links"]
    }
    print("ready", flush=True)  # noqa: T201 - the launcher waits for it
    carry(links, plan["delay_s"])


if __name__ == "__main__":
    main()
