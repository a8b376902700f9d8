"""What a launch saw of its cluster: of each host, and of the path between two."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ConfigDict

_STORED = ConfigDict(defer_build=True, strict=True, extra="ignore", allow_inf_nan=False)
"""Findings are read back from records, which somebody else may have written."""


@dataclass(frozen=True)
class HostFindings:
    """One host: its settings as they were read back, and what happened on it while the launch ran."""

    __pydantic_config__ = _STORED

    name: str
    address: str
    roles: list[str]
    """``worker-0``, ``server-1``, …: who ran on it."""
    cores: list[int]
    """That its workers were pinned to; empty if none was."""
    bandwidth_bits_per_s: float | None
    """Of its link: by the kernel, or as the switch was set where a program joins the hosts; None if unlimited."""
    burst_bytes: int | None
    cpu_quota_cores: float | None
    """Cores' worth of time that the host may use; None if it has no limit."""
    received_bytes: int
    """By its interface while the launch ran."""
    sent_bytes: int
    throttled_s: float | None = None
    """How long the limit of processor time held the host back; None if there is none, or it is not counted."""
    throttled_periods: int | None = None
    periods: int | None = None


@dataclass(frozen=True)
class PathFindings:
    """From one host to another and back, measured with plain sockets before the launch."""

    __pydantic_config__ = _STORED

    source: int
    target: int
    alpha_s: float
    """Half the time of a round trip of one byte each way, median."""
    bandwidth_bits_per_s: float
    """Of a message of ``message_bytes``, median, with the short round trip taken off."""
    message_bytes: int


@dataclass(frozen=True)
class ClusterFindings:
    """A cluster as one launch had it."""

    __pydantic_config__ = _STORED

    kind: str
    """``emulated``: hosts are namespaces of one machine; ``found``: hosts of a site, as they are."""
    delay_s: float
    delay_by: str | None
    """What makes the delay, ``netem`` of the kernel or a program, ``switch``; None if none was asked for."""
    cpu_groups: str | None
    """``cgroup v1`` or ``cgroup v2``; None if the machine has neither, and load of other processes is not kept away."""
    users: bool
    """Whether hosts have user namespaces of their own, without which some libraries see that they are one machine."""
    congestion_control: str
    hosts: list[HostFindings] = field(default_factory=list)
    paths: list[PathFindings] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Its form in the launch's record."""
        return asdict(self)
