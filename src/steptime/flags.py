"""Flags, one row each: conditions under which a number holds. A flag never removes a measurement.

A record keeps the code of a flag, behind it what differs between launches; a report has the sentence. A new flag is a
row here and the place that raises it; one that is about an amount of noise is raised by its row alone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

FOREIGN_CORES = 0.1
"""Cores kept busy by others."""
STEAL_SHARE = 0.01
"""Share of the machine's time that its host gave to others."""
THROTTLED_SHARE = 0.01
"""Share of the launch in which a limit (container quota, GPU heat or power) held it back."""
HELD_BACK_SHARE = 0.1
"""Share of the moments of the timed steps in which a limit held a GPU's clocks down; a few are far apart."""
MEMORY_LEFT_SHARE = 0.05
"""Share of memory that was still available."""


@dataclass(frozen=True)
class FlagMeaning:
    """What one flag, or several of a kind, mean for a reader."""

    title: str
    sentences: str


@dataclass(frozen=True)
class NoiseLimit:
    """The amount of noise that raises a flag."""

    quantity: str
    """A name of ``results/noise.py``."""
    usual: float
    unit: str = ""
    """In which a report shows the amount; empty where it shows none."""
    fewest: bool = False
    """Whether less than usual raises the flag, in place of more."""

    def is_passed(self, noise: Mapping[str, float | None]) -> bool:
        """Whether a launch with ``noise`` has the flag; not where the system does not say."""
        value = noise.get(self.quantity)
        return value is not None and (value < self.usual if self.fewest else value > self.usual)

    def amount(self, noise: Sequence[Mapping[str, float | None]]) -> str:
        """Return how much several launches had, ``0.3 to 1.5 cores``; empty if unknown or not shown."""
        known = [value for each in noise if (value := each.get(self.quantity)) is not None]
        if not known or not self.unit:
            return ""
        factor = 100.0 if self.unit == "%" else 1.0
        least, most = (f"{factor * value:.2g}" for value in (min(known), max(known)))
        return f"{least} {self.unit}" if least == most else f"{least} to {most} {self.unit}"


@dataclass(frozen=True)
class Flag:
    """One condition."""

    code: str
    """In records."""
    sentence: str
    """In reports, with the names of what differs in braces. That of a record's flag has at most ``{detail}``."""
    meaning: FlagMeaning | None = None
    """None if the sentence needs no other."""
    limit: NoiseLimit | None = None
    """None of what is not about noise."""
    former: tuple[str, ...] = ()
    """Sentences of earlier versions, which kept them in records."""


_CROWDED = FlagMeaning(
    "more workers than cores",
    "Workers shared processor cores. They compete for them, so the number does not hold for a machine on which each "
    "worker has its own.",
)
_NOISY = FlagMeaning(
    "noisy",
    "Something else used the machine during launches. The interval shows what came of it, as far as it differed "
    "between launches.",
)
_UNREPEATED = FlagMeaning(
    "timed steps not repeated",
    "Nothing was compared that shows what the timed steps trained, so that the rank rests on the times alone.",
)
_THROTTLED = FlagMeaning("throttled", "A limit on heat, power or processor time held the machine back.")
_STALLS = FlagMeaning(
    "stalls",
    "Some steps take much longer than the others. The step time is the mean, which includes them; the median is the "
    "time of a step between stalls.",
)
_SPREAD = FlagMeaning(
    "steps spread widely",
    "No kind of step is much longer, and yet the mean, which is the step time, is not near the median.",
)
_SHORT = FlagMeaning(
    "steps under 1 ms",
    "Frameworks have different clocks on devices, whose own time is a part of each step. Differences of some "
    "microseconds, and of the median, p90 and p99 altogether, may be those of the clocks.",
)
_SPREAD_OF_OTHERS = FlagMeaning(
    "single launch: its interval takes",
    "How launches differ was estimated from the other trials; this trial's own launch cannot confirm it.",
)
_NO_SPREAD = FlagMeaning(
    "single launch: its interval leaves",
    "Steps within one launch say nothing of how launches differ; the true interval is wider.",
)
_POOLED = FlagMeaning(
    "pooled over different",
    "Launches of several versions, schedules or hosts are in one number, which is that of none of them. Remove some, "
    "or measure into another folder.",
)
_SITES = FlagMeaning(
    "launches on several sites",
    "The step time is that of launches on several sets of hosts together. Ratios are of launches of the same blocks, "
    "each of which ran on one set.",
)
_SET_ASIDE = FlagMeaning(
    "records set aside",
    "Lines of its records are not of this trial, or are damaged, and are not in the number. They stay in their files; "
    "the list below names them.",
)
_FAILED = FlagMeaning("launches failed", "Some launches ended with an error and are not in the number.")

_ROWS = (
    Flag("overcommitted", "more workers than cores", _CROWDED),
    Flag(
        "noisy_foreign_cpu",
        f"noisy: CPU used by other processes above {FOREIGN_CORES:g} core",
        _NOISY,
        NoiseLimit("foreign_cpu_cores", FOREIGN_CORES, "cores"),
        ("noisy: foreign CPU load above 0.1 core",),
    ),
    Flag(
        "noisy_steal",
        f"noisy: more than {STEAL_SHARE:.0%} of the CPU time was stolen by the host",
        _NOISY,
        NoiseLimit("steal_share", STEAL_SHARE, "%"),
    ),
    Flag("noisy_gpu", "noisy: other processes on a GPU", _NOISY, NoiseLimit("gpu_processes", 1.0)),
    Flag("noisy_swap", "noisy: memory was swapped in", _NOISY, NoiseLimit("swapped_in_pages", 0.0)),
    Flag(
        "noisy_memory",
        f"noisy: less than {MEMORY_LEFT_SHARE:.0%} of memory was left",
        _NOISY,
        NoiseLimit("memory_available_share", MEMORY_LEFT_SHARE, fewest=True),
    ),
    Flag("unrepeated", "timed steps not repeated: {why}", _UNREPEATED),
    Flag("throttled_heat", "throttled: the CPU was too hot", _THROTTLED, NoiseLimit("thermal_throttles", 0.0)),
    Flag(
        "throttled_quota",
        "throttled: a container's CPU quota",
        _THROTTLED,
        NoiseLimit("cgroup_throttled_share", THROTTLED_SHARE, "%"),
    ),
    Flag(
        "throttled_gpu",
        "throttled: a GPU's heat or power limit",
        _THROTTLED,
        NoiseLimit("gpu_throttled_share", THROTTLED_SHARE, "%"),
    ),
    Flag(
        "throttled_gpu_clocks",
        "throttled: a GPU's clocks while steps were timed",
        _THROTTLED,
        NoiseLimit("gpu_held_back_share", HELD_BACK_SHARE, "%"),
    ),
    Flag("stalls", "stalls {when}, of {longer}; {ratio}", _STALLS),
    Flag("spread_steps", "steps spread widely: {ratio}", _SPREAD),
    Flag("short_steps", "steps under 1 ms: its framework's clock takes {share} of a step", _SHORT),
    Flag(
        "single_launch_pooled",
        "single launch: its interval takes from other trials how launches differ",
        _SPREAD_OF_OTHERS,
    ),
    Flag("single_launch", "single launch: its interval leaves out how launches differ", _NO_SPREAD),
    Flag("pooled", "pooled over different {what}: {values}", _POOLED),
    Flag("several_sites", "launches on several sites: {sites}", _SITES),
    Flag("set_aside", "records set aside: {reasons}", _SET_ASIDE),
    Flag("failed_launches", "{failed} of {launches} launches failed", _FAILED),
    Flag("fewer_checked", "checked with {checked} of {workers} workers"),
    Flag("uncompared_clock", "clock of steps not compared with the kernel's ({launches} of {of} launches)"),
    Flag(
        "uncompiled",
        "torch.compile left the network out ({outside} of {workers} workers): it compiled {operations} operations",
    ),
    Flag("diverged", "training diverged: its loss is not a number (lower optimizer.learning_rate)"),
    Flag("hosts_differ", "hosts of different kinds: {detail}"),
    Flag(
        "incomplete_stage",
        "the stage {stage} leaves something of the step out, which takes {longer} more although its loader loads "
        "nothing: the phases are not those of the step",
    ),
)
"""Those with a meaning in the order in which reports explain them."""
FLAGS = {flag.code: flag for flag in _ROWS}
MEANINGS = tuple(dict.fromkeys(flag.meaning for flag in _ROWS if flag.meaning))

_LAUNCHES = r"(?: \(\d+ of \d+ launches(?:: [^()]*)?\))?"
"""What ``counted`` of ``analysis/flags.py`` writes behind a sentence."""


def flag_text(code: str, **values: object) -> str:
    """Return the sentence of a flag for a report."""
    return FLAGS[code].sentence.format(**values)


def flag_in_report(text: str) -> Flag | None:
    """Return the flag whose sentence ``text`` is; None of other text, such as that of a newer version."""
    return next((flag for flag in _ROWS if _form(flag.sentence).fullmatch(text)), None)


def stored(code: str, detail: str = "") -> str:
    """Return a flag for a record."""
    return f"{FLAGS[code].code}: {detail}" if detail else FLAGS[code].code


def read_stored(text: str) -> str:
    """Return a flag of a record by its code; records from before flags had one kept the sentence.

    What no version of this table knows stays as it is.
    """
    if text in FLAGS:
        return text
    for flag in _ROWS:
        for sentence in (flag.sentence, *flag.former):
            if match := _form(sentence).fullmatch(text):
                return stored(flag.code, match.groupdict().get("detail") or "")
    return text


def stored_flag_text(text: str) -> str:
    """Return the sentence of a flag of a record."""
    code, _, detail = text.partition(": ")
    return flag_text(code, detail=detail) if code in FLAGS else text


def amount(text: str, noise: Sequence[Mapping[str, float | None]]) -> str:
    """Return how much of what a record's flag is about launches with ``noise`` had; empty if it is about no amount."""
    flag = FLAGS.get(text)
    return flag.limit.amount(noise) if flag and flag.limit else ""


@cache
def _form(sentence: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", sentence)
    words = [f"(?P<{part}>.*)" if index % 2 else re.escape(part) for index, part in enumerate(parts)]
    return re.compile("".join(words) + _LAUNCHES, re.DOTALL)
