"""Slow ranks, where a text log names them: Megatron-LM's straggler detector and timers, and that of NVIDIA's NVRx.

- Megatron-LM with ``--log-straggler``: a line of the least and the greatest of all ranks, and with
  ``--straggler-minmax-count`` one of the ranks of least throughput.
- Megatron-LM with ``--timing-log-option all``: the times of every rank, below the name of each timer. Timers of
  exchanges are left out, in which the fast ranks wait for the slow ones. ``minmax`` and ``max`` name no rank.
- NVRx (NeMo, Lightning): a score of each rank, or of the worst and the best.

torchtitan, DeepSpeed and the others print one rank, or a figure of all.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from steptime.attached.form import listed_ranks
from steptime.units import format_count, format_seconds

_SLOWER = 1.1
"""So many times the median of the ranks, a rank is slow in a report."""
_FEWEST_RANKS = 2
_NUMBER, _RANK = r"(\d{1,9}(?:\.\d{1,9})?)", r"(\d{1,6})(?![\w.])"
_DETECTED = re.compile(rf"MnRtt/Rnk: {_NUMBER}ms/{_RANK}.*MxRtt/Rnk: {_NUMBER}ms/{_RANK}")
_LOWEST = re.compile(r"\^{4} Bottom \d{1,6} Ranks with lowest\s+Etpt\(TF\):(.*)")
_VALUE = re.compile(rf"[\d.]+TF/{_RANK}")
_ALL_TIMES = re.compile(r"(?<!\w )times across ranks \(ms\):")
_TIMER = re.compile(r"(?:^|\s)([a-z][\w-]*):\s*$")
_TIME = re.compile(rf"(?:^|\s)rank\s+{_RANK}: {_NUMBER}\s*$")
_COMPUTING = frozenset(
    ("batch-generator", "forward-compute", "backward-compute", "optimizer", "optimizer-inner-step", "optimizer-copy")
)
"""Timers of Megatron-LM in which no rank waits for another."""
_SCORES = "GPU relative performance:"
_SCORE = re.compile(rf"Rank={_RANK} Node=(\S+) Score={_NUMBER}")
_AFFECTED = "Some GPUs have worse relative performance. Affected ranks:"
_WARNED = re.compile(rf"rank={_RANK}|(?<![\w.'-]){_RANK}(?=[,}}\])\s]|$)")


@dataclass
class SlowRanks:
    """What the lines of a log tell of its ranks."""

    _slowest: Counter[int] = field(default_factory=Counter)
    """In how many reports of the detector a rank has the longest round trip."""
    _trips: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of these reports, the sums of the shortest and the longest, in seconds."""
    _lowest: Counter[int] = field(default_factory=Counter)
    _lists: int = 0
    _timer: str | None = None
    """Whose times follow; None outside of a report, empty before its first timer."""
    _times: dict[int, float] = field(default_factory=dict)
    _sums: dict[str, dict[int, float]] = field(default_factory=dict)
    _reports: Counter[str] = field(default_factory=Counter)
    _slow: dict[str, Counter[int]] = field(default_factory=dict)
    _scoring: bool = False
    _scores: dict[int, tuple[float, int, str]] = field(default_factory=dict)
    """Of each rank the sum, in how many reports, and its node."""
    _warned: Counter[int] = field(default_factory=Counter)
    _warnings: int = 0

    def take(self, line: str) -> None:
        """Read a line."""
        if self._timer is not None and self._reads_times(line):
            return
        if self._scoring:
            if (known := _SCORE.search(line)) is not None:
                self._take_score(int(known[1]), known[2], float(known[3]))
                return
            self._scoring = "performing" in line
        if "Rnk: " in line and (known := _DETECTED.search(line)) is not None:
            self._take_trips(float(known[1]) * 1e-3, float(known[3]) * 1e-3, int(known[4]))
        elif "^^^^" in line and (known := _LOWEST.search(line)) is not None:
            self._lists += 1
            self._lowest.update({int(rank) for rank in _VALUE.findall(known[1])})
        elif "times across ranks" in line and _ALL_TIMES.search(line) is not None:
            self._timer = ""
        elif _SCORES in line:
            self._scoring = True
        elif _AFFECTED in line:
            self._warnings += 1
            ranks = _WARNED.findall(line.partition(_AFFECTED)[2])
            self._warned.update({int(named or bare) for named, bare in ranks})

    def sentences(self) -> Iterator[str]:
        """Yield what is known of slow ranks, a sentence each."""
        self._end_report()
        if self._trips:
            yield self._trip_sentence()
        often = [rank for rank, count in self._lowest.items() if 2 * count > self._lists]
        if often:
            lists = format_count(self._lists, "list")
            yield f"{listed_ranks(often)}: among those of least throughput in most of {lists}"
        yield from self._timer_sentences()
        if self._scores:
            yield self._score_sentence()
        if self._warnings:
            mostly = [rank for rank, count in self._warned.items() if 2 * count > self._warnings]
            which = listed_ranks(mostly) if mostly else "other ranks each time"
            yield f"NVRx warns of stragglers in {format_count(self._warnings, 'report')}, mostly of {which}"

    def _reads_times(self, line: str) -> bool:
        """Read a line of the times of all ranks; a line of another form ends their report."""
        if (known := _TIME.search(line)) is not None:
            if self._timer in _COMPUTING:
                self._times[int(known[1])] = float(known[2]) * 1e-3
            return True
        self._end_report()
        if (known := _TIMER.search(line)) is not None:
            self._timer = known[1]
            return True
        self._timer = None
        return False

    def _end_report(self) -> None:
        """Add up the times of a timer."""
        timer, times = self._timer, self._times
        self._times = {}
        if not timer or len(times) < _FEWEST_RANKS:
            return
        limit = _SLOWER * float(np.median(list(times.values())))
        sums = self._sums.setdefault(timer, {})
        for rank, seconds in times.items():
            sums[rank] = sums.get(rank, 0.0) + seconds
        self._reports[timer] += 1
        self._slow.setdefault(timer, Counter()).update(rank for rank, seconds in times.items() if seconds > limit)

    def _take_score(self, rank: int, node: str, score: float) -> None:
        total, reports, _ = self._scores.get(rank, (0.0, 0, ""))
        self._scores[rank] = (total + score, reports + 1, node)

    def _take_trips(self, shortest: float, longest: float, rank: int) -> None:
        sums = self._trips.get(rank, (0.0, 0.0))
        self._trips[rank] = (sums[0] + shortest, sums[1] + longest)
        self._slowest[rank] += 1

    def _trip_sentence(self) -> str:
        ((rank, count),) = self._slowest.most_common(1)
        reports = f"{format_count(self._slowest.total(), 'report')} of Megatron-LM's straggler detector"
        if 2 * count <= self._slowest.total():
            return f"no rank is slowest in most of {reports}"
        shortest, longest = (format_seconds(total / count) for total in self._trips[rank])
        return (
            f"rank {rank} is slowest in {count} of {reports}: its round trip takes {longest}, that of the fastest rank "
            f"{shortest}"
        )

    def _timer_sentences(self) -> Iterator[str]:
        """Yield the ranks that are slow in most reports of a timer, the timer that costs most first."""
        costs: dict[str, tuple[float, str]] = {}
        for timer, reports in self._reports.items():
            means = {rank: total / reports for rank, total in self._sums[timer].items()}
            slow = [rank for rank, count in self._slow[timer].items() if 2 * count > reports]
            if slow:
                costs[timer] = _cost(timer, means, slow, reports)
        yield from (sentence for _, sentence in sorted(costs.values(), reverse=True))

    def _score_sentence(self) -> str:
        means = {rank: total / reports for rank, (total, reports, _) in self._scores.items()}
        worst, best = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        _, reports, node = self._scores[worst]
        return (
            f"NVRx scores rank {worst} ({node}) least: {means[worst]:.2f} of the fastest, mean of "
            f"{format_count(reports, 'report')}; rank {best} most: {means[best]:.2f}"
        )


def _cost(timer: str, means: Mapping[int, float], slow: list[int], reports: int) -> tuple[float, str]:
    """Return what slow ranks take longer than the median, in seconds, and the sentence."""
    median = float(np.median(list(means.values())))
    own = float(np.mean([means[rank] for rank in slow]))
    return own - median, (
        f"{timer}: {listed_ranks(slow)} took {format_seconds(own)}, the median of {len(means)} ranks "
        f"{format_seconds(median)} (in most of {format_count(reports, 'report')} more than {_SLOWER:g} times it)"
    )
