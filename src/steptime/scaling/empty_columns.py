"""What to state next: columns that a table leaves empty and that, stated, would narrow a forecast most.

The samples of the posterior are cut into parts by what a column may turn out to be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from steptime.curves.curve import ScalingCurve
from steptime.curves.facts import UNSTATED, facts_of
from steptime.curves.input_ceiling import input_path
from steptime.curves.posterior import AssumedHosts, summarize
from steptime.curves.shape import INDEX

LINKS: Mapping[str, str] = {
    "inter_host_gbps": "steptime net between two hosts",
    "intra_host_link": "steptime net on one host",
}
"""The micro-benchmark that measures what an empty column would state."""

_BETWEEN_HOSTS = frozenset({"inter_host_gbps", "transport"})
_STORE_RATE = "input_samples_per_s"
QUESTIONS: Mapping[str, str] = {
    "inter_host_gbps": "which network joins the hosts (Gbit/s of one card; nics_per_host: how many)?",
    "workers_per_host": "how many workers share a host?",
    "intra_host_link": "which link joins the workers of a host (pcie, nvlink, nvswitch)?",
    "parameters": "how many trainable values has the model?",
    "transport": "do messages between hosts go by tcp or rdma?",
    _STORE_RATE: "how many samples/s does the store give to all workers together at most?",
}
"""What a column that is empty would answer."""


_BINS = 8
"""Of what an empty column may turn out to say, each as likely."""


@dataclass(frozen=True)
class EmptyColumn:
    """A column that the table leaves empty."""

    column: str
    ratio: float
    """Upper over lower end of the target's interval, as is expected once the column is stated."""

    @property
    def question(self) -> str:
        """What the column would answer."""
        return QUESTIONS[self.column]

    @property
    def asks_for_store(self) -> bool:
        """Whether it asks for the rate of a store."""
        return self.column == _STORE_RATE

    @property
    def benchmark(self) -> str | None:
        """The command that measures it; None without one."""
        return LINKS.get(self.column)


def empty_columns(curve: ScalingCurve, found: Sequence[AssumedHosts], target: int) -> list[EmptyColumn]:
    """Return the columns that are empty, the one that matters most first.

    Args:
        curve: whose table it is.
        found: the posterior.
        target: which of the points asked for the interval is of.
    """
    alone = [_of_one_point(one, target) for one in found]
    one_host = curve.setup.assumed_host_size == inf  # as runs of all numbers of workers show
    columns = [
        EmptyColumn(column, _mean_ratio([(1.0, part) for part in _parts(alone, INDEX[name])]))
        for name, column in UNSTATED.items()
        if facts_of(curve.setup).spreads[name] > 0 and not (one_host and column in _BETWEEN_HOSTS)
    ]
    path = input_path(curve)
    if path.shared and path.samples_s is None:
        limited = _mean_ratio([(1.0, part) for part in _parts(alone, INDEX["store"])])
        columns.append(EmptyColumn(_STORE_RATE, limited))
    if curve.setup.workers_per_host is None and curve.setup.assumed_host_size is None:
        hosts: dict[tuple[float, bool], list[AssumedHosts]] = {}
        for one in alone:
            hosts.setdefault((one.host_size, one.spread), []).append(one)
        parts = [(sum(one.share for one in same), same) for same in hosts.values()]
        columns.append(EmptyColumn("workers_per_host", _mean_ratio(parts)))
    return sorted(columns, key=lambda each: each.ratio)


def _of_one_point(one: AssumedHosts, point: int) -> AssumedHosts:
    samples = one.samples
    kept = replace(samples, mean=samples.mean[:, [point]], covariance=samples.covariance[:, [point]][:, :, [point]])
    return replace(one, samples=kept, least_s=one.least_s[[point]])


def _mean_ratio(parts: Sequence[tuple[float, Sequence[AssumedHosts]]]) -> float:
    """Return the geometric mean of the ratios of interval ends, over parts with how likely each is."""
    widths = [share * np.log(point.high / point.low) for share, part in parts for point in summarize(part)]
    return float(np.exp(np.sum(widths) / sum(share for share, _ in parts)))


def _parts(found: Sequence[AssumedHosts], column: int) -> list[list[AssumedHosts]]:
    """Return the posterior cut into parts that are about as likely as each other, by the value of a parameter."""
    values = np.concatenate([one.samples.parameters[:, column] for one in found])
    weights = np.concatenate([one.share * one.samples.weights for one in found])
    order = np.argsort(values)
    part = np.empty(len(values), dtype=int)
    part[order] = np.minimum((np.cumsum(weights[order]) * _BINS).astype(int), _BINS - 1)
    ends = np.cumsum([len(one.samples.weights) for one in found])[:-1]
    # One heavy sample may be worth several parts, of which the others are then empty.
    members = [np.split(part == number, ends) for number in np.unique(part[weights > 0])]
    return [
        [
            replace(one, samples=replace(one.samples, weights=one.samples.weights * own))
            for one, own in zip(found, each, strict=True)
        ]
        for each in members
    ]
