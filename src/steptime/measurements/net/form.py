"""What the network benchmark found, as ``steptime net --json`` and ``steptime report --json`` (key ``net``) print it.

docs/net.md describes each key.

Schema diary (``SCHEMA`` grows by one whenever a key changes its meaning):

1. First version.
"""

from typing import Any

from steptime.measurements.json_form import NOT_MEASURED, Interval, JsonForm

SCHEMA = 1


class SizeRow(JsonForm):
    """One size of a message."""

    bytes: int
    time_s: Interval[float | None]
    q10_s: float
    q90_s: float
    """Quantiles of single runs."""
    runs: int
    bus_bytes_per_s: Interval[float | None] = NOT_MEASURED
    """Of all-reduces, ``busbw`` of nccl-tests (doc/PERFORMANCE.md): bytes per second times 2(p-1)/p, which a link of
    each worker carries in either direction; None of other operations."""
    fitted_s: float
    error: float
    """(fitted - measured) / measured."""
    predicted_error: float | None = None
    """Likewise of the link that the fewest workers showed; None for these themselves."""


class Fit(JsonForm):
    """A straight line through time against size, and what follows for the link."""

    start_s: Interval[float | None]
    """Seconds of a message without a byte."""
    latencies_per_step: Interval[float | None]
    """``start_s`` in alphas, per step of the operation's textbook algorithm."""
    bandwidth_bytes_per_s: Interval[float | None]
    """Of each worker's link, in the busier direction; None if time does not grow with size."""
    worst_error: float
    """Of the sizes, the one of largest magnitude, with its sign."""
    worst_bytes: int


class NetRow(JsonForm):
    """One operation of a back end between so many workers."""

    back_end: str
    framework: str
    framework_version: str | None
    operation: str
    workers: int
    servers: int
    launcher: str
    cluster: dict[str, Any] | None
    """Hosts and links that were asked for; None if the launcher made none."""
    steps: float
    """Of the textbook algorithm, for this number of workers and servers."""
    volume: float
    """Bytes through the busiest link, in one direction, per byte of the message."""
    launches: int
    failed_launches: int
    wrong_launches: int
    """Those in which a value was wrong."""
    checks: int
    wrong: int
    """Visits that were checked, over workers and launches, and those with a wrong value."""
    status: str
    """``ok``; ``wrong`` where any value was, or ``failed`` where no launch ended well: then nothing is fitted."""
    reason: str | None
    interval_over: str
    """``launches``, or ``rounds`` of a single launch, which know nothing of how launches differ."""
    level: float
    alpha_s: Interval[float | None]
    """One way of one byte over a plain socket between the same processes."""
    sizes: list[SizeRow]
    fit: Fit | None
    """Through the smallest and the largest size; what prediction uses."""
    least_squares: Fit | None
    """With relative weights over all sizes, to compare."""
    flags: list[str]
    received_bytes: int | None
    """By all hosts' interfaces, over all launches; None if the launcher made no hosts."""


class NetSummary(JsonForm):
    """Everything that a results folder knows of back ends."""

    rows: list[NetRow]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return [row.model_dump(mode="json") for row in self.rows]
