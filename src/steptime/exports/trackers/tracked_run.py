"""What a tracker is given of an attached run, from the JSON of its report: numbers with their steps, and sentences."""

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_PASSWORD = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:)[^\s/]*@")
"""Of an address; it may hold @ itself."""
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+(/|$)")
_BOUNDS = (("mean", "value"), ("low", "low"), ("high", "high"))
_QUANTILES = (("median", "median_s"), ("p90", "p90_s"), ("p99", "p99_s"))
WHOLE, WINDOWS = "run", "window"
OF_WINDOWS = "steptime"
"""What the names of values of windows begin with."""
_MARKED = re.compile(r"[\\`*_\[\]]")


@dataclass(frozen=True)
class TrackedValue:
    """A finite number of seconds."""

    scope: str
    """``WHOLE`` or ``WINDOWS``."""
    statistic: str
    """``mean`` with its bounds ``low`` and ``high``, ``median``, ``p90``, ``p99`` or ``longest``."""
    seconds: float
    step: int
    """The last that it holds; of the longest that step."""
    at_s: float
    """When this was over, since 1970."""
    part: str | None = None
    """Of a step; None of the whole step."""
    rank: int | None = None
    """None of the mean over ranks."""

    @property
    def name(self) -> str:
        """For places whose values have nothing but a name: ``steptime/step_s/mean`` of a window, ``steptime_run/…``.

        Such places show names in their order: curves precede single numbers, and steps their parts.
        """
        scope = OF_WINDOWS if self.scope == WINDOWS else f"{OF_WINDOWS}_{self.scope}"
        what = "step_s" if self.part is None else f"within_step_s/{plain_name(self.part)}"
        return f"{scope}/{what}/{self.statistic if self.rank is None else f'rank_{self.rank}'}"


@dataclass(frozen=True)
class TrackedFinding:
    """A finding in a sentence."""

    kind: str
    sentence: str
    lost_s: float | None


@dataclass(frozen=True)
class CountedSteps:
    """How many steps of a rank took how long."""

    rank: int
    bounds_s: Sequence[float]
    counts: Sequence[int]
    """One more than bounds."""
    sum_s: float


@dataclass(frozen=True)
class TrackedRun:
    """An attached run."""

    name: str
    about: Mapping[str, str]
    page: str
    begin_s: float
    """Since 1970."""
    end_s: float
    values: Sequence[TrackedValue]
    """In the order of their steps."""
    counted: Sequence[CountedSteps]
    findings: Sequence[TrackedFinding]

    @property
    def text(self) -> str:
        """The findings and where the page is, in Markdown."""
        lines = [f"- {_as_markdown(finding.sentence)}" for finding in self.findings] or ["- No finding."]
        return "\n".join([f"`` {self.about['command']} ``", "", *lines, "", f"Page: {_as_markdown(self.page)}"])


def _as_markdown(text: str) -> str:
    """Return Markdown that shows ``text`` as it is: ``<module>`` would vanish as HTML."""
    return html.escape(_MARKED.sub(r"\\\g<0>", text), quote=False)


def plain_name(name: str) -> str:
    """Return a name of letters, digits, dots and dashes: ``update_to_input`` of a gap."""
    return _NOT_IN_NAMES.sub("_", name.replace(">", "_to_"))


def full_address(target: str) -> str:
    """Return a target with its scheme where it is a host and a port: ``localhost:9091``."""
    return f"http://{target}" if _HOST_AND_PORT.match(target) else target


def masked(text: str) -> str:
    """Return a text without the passwords of the addresses in it: ``https://name:***@host``."""
    return _PASSWORD.sub(r"\1***@", text)


def tracked_run(attached: Mapping[str, Any], name: str, page: str) -> TrackedRun:
    """Return what a tracker is given of a run.

    Args:
        attached: the object ``attached`` of ``steptime report --json``.
        name: of the run.
        page: where the report is.
    """
    begin_s = datetime.fromisoformat(attached["started_at"]).timestamp()
    windows = attached["windows"]
    over_s = max([attached["wall_s"] or 0.0, *(window["end_s"] for window in windows)])
    about = {
        "command": masked(" ".join(attached["command"])),
        "started_at": attached["started_at"],
        "ranks": str(attached["world"]),
        "hosts": ", ".join(sorted({rank["host"] for rank in attached["ranks"]})),
        "steps": str(attached["steps"]),
    }
    about |= {"exit_code": str(attached["exit_code"])} if attached["exit_code"] is not None else {}
    numbers = [rank["rank"] for rank in attached["ranks"]]
    values = [
        *(value for window in windows for value in _values_of_window(window, numbers, begin_s)),
        *_values_of_run(attached, numbers, begin_s + over_s),
    ]
    finite = [value for value in values if math.isfinite(value.seconds)]
    lengths = attached["histogram"] or {"bounds_s": [], "counts": [], "sums_s": []}
    return TrackedRun(
        name=name,
        about=about,
        page=page,
        begin_s=begin_s,
        end_s=begin_s + over_s,
        values=sorted(finite, key=lambda value: value.step),
        counted=[
            CountedSteps(rank, lengths["bounds_s"], counts, sum_s)
            for rank, counts, sum_s in zip(numbers, lengths["counts"], lengths["sums_s"], strict=False)
            if math.isfinite(sum_s)
        ],
        findings=[TrackedFinding(**finding) for finding in attached["findings"]],
    )


def _values_of_window(window: Mapping[str, Any], ranks: Sequence[int], begin_s: float) -> Iterator[TrackedValue]:
    last = TrackedValue(WINDOWS, "mean", math.nan, window["last_step"], begin_s + window["end_s"])
    yield from _mean(window["mean_s"], last)
    yield from _quantiles(window, last)
    for part, seconds in window["parts_s"].items():
        yield replace(last, seconds=seconds, part=part)
    yield from _ranks(window["ranks_s"], ranks, last)


def _values_of_run(attached: Mapping[str, Any], ranks: Sequence[int], at_s: float) -> Iterator[TrackedValue]:
    windows = attached["windows"]
    last = TrackedValue(WHOLE, "mean", math.nan, windows[-1]["last_step"] if windows else attached["steps"], at_s)
    yield from _mean(attached["step_s"], last)
    if attached["spread"]:
        yield from _quantiles(attached["spread"], last)
    for part in attached["parts"]:
        of_part = replace(last, part=part["name"])
        yield from _mean(part["time_s"], of_part)
        yield from _ranks(part["ranks_s"], ranks, of_part)


def _mean(interval: Mapping[str, float | None], like: TrackedValue) -> Iterator[TrackedValue]:
    for statistic, key in _BOUNDS:
        if (seconds := interval[key]) is not None:
            yield replace(like, statistic=statistic, seconds=seconds)


def _quantiles(steps: Mapping[str, Any], like: TrackedValue) -> Iterator[TrackedValue]:
    """Yield quantiles of steps, and the longest at its own step."""
    for statistic, key in _QUANTILES:
        if (seconds := steps.get(key)) is not None:
            yield replace(like, statistic=statistic, seconds=seconds)
    yield replace(like, statistic="longest", seconds=steps["longest_s"], step=steps["longest_step"])


def _ranks(seconds: Sequence[float | None], ranks: Sequence[int], like: TrackedValue) -> Iterator[TrackedValue]:
    """Yield what each of several ranks took; nothing of a part that is not known."""
    if len(ranks) > 1 and seconds:
        for rank, own_s in zip(ranks, seconds, strict=True):
            if own_s is not None:
                yield replace(like, seconds=own_s, rank=rank)
