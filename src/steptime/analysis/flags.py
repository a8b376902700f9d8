"""Flags of a trial (conditions under which its numbers hold), and the options in which trials of a study differ.

A flag never removes a measurement.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from steptime.analysis.pooled_conditions import (
    ScheduledLaunch,
    pooled_hosts,
    pooled_imports,
    pooled_isolation,
    pooled_schedules,
    pooled_sites,
    pooled_versions,
    versions_of,
)
from steptime.catalog.options import Tuning
from steptime.flags import amount, flag_text, stored, stored_flag_text
from steptime.results.consistency import SetAside
from steptime.results.consistency import counted as reasons_counted
from steptime.results.records import Launch
from steptime.statistics.shared_imports import import_names
from steptime.statistics.stalls import Stalls
from steptime.study.trial import Trial
from steptime.units import format_seconds


def trial_flags(
    trial: Trial,
    launches: Sequence[Launch],
    failed: int,
    cores: float | None,
    ablations: Sequence[ScheduledLaunch] = (),
) -> list[str]:
    """Return the flags of a trial.

    Args:
        trial: the configuration.
        launches: those that ended well.
        failed: how many did not.
        cores: physical cores that a launch could use; None when the machine did not say.
        ablations: those that broke steps down.
    """
    found = []
    # Servers compute as well: they sum and update while workers wait or go on.
    busy = trial.workers * trial.threads + trial.servers
    if cores is not None and trial.device == "cpu" and busy > cores:
        found.append(flag_text("overcommitted"))
    found += counted([launch.flags for launch in launches], [launch.noise for launch in launches])
    apart = [launch for launch in ablations if launch.status == "ok"]
    found += pooled_versions([versions_of(launch) for launch in [*launches, *apart]])
    found += [*pooled_schedules(launches), *pooled_schedules(apart), *pooled_isolation(launches)]
    found += [*pooled_sites(launches), *pooled_hosts(launches), *pooled_imports(launches)]
    unmarked = sum(any(each.kernel_marks and not each.kernel_marks.marks for each in own.workers) for own in launches)
    found += [flag_text("uncompared_clock", launches=unmarked, of=len(launches))] if unmarked else []
    found += _uncompiled(launches)
    if trial.device != "cpu":
        found += _short_steps(launches)
    if len(set(import_names(launches))) == 1:
        found.append(flag_text("single_launch"))
    if failed:
        found.append(flag_text("failed_launches", failed=failed, launches=failed + len(launches)))
    return found


def _uncompiled(launches: Sequence[Launch]) -> list[str]:
    """Return the flag of workers that compile and whose network is in none of torch's graphs."""
    facts = [worker.facts for launch in launches for worker in launch.workers]
    outside = [own for own in facts if own.get("network_in_graphs") is False]
    return [
        flag_text("uncompiled", outside=len(outside), workers=len(facts), operations=own["calls_captured"])
        for own in outside[:1]
    ]


_SHORT_S = 1e-3
"""Of a step on a device: a clock marks its end by work of its own, which is of some microseconds."""


def _short_steps(launches: Sequence[Launch]) -> list[str]:
    """Return the flag of steps so short that the clocks of frameworks, which differ, are a part of them."""
    workers = [worker for launch in launches for worker in launch.workers if worker.ends_s]
    steps = [(worker.ends_s[-1] - worker.origin_s) / len(worker.ends_s) for worker in workers]
    if not steps or (step_s := median(steps)) >= _SHORT_S:
        return []
    ticks = [worker.facts["tick_s"] for worker in workers if worker.facts.get("tick_s")]
    share = f"{100.0 * median(ticks) / step_s:.2g} %" if ticks else "an unknown part"
    return [flag_text("short_steps", share=share)]


def stall_flag(stalls: Stalls) -> str:
    """Return ``stalls every 4 steps, of 50 ms; the mean step is 1.43 times the median one``."""
    ratio = stalls.mean_over_median
    parted = "the median step has no length on the clock" if ratio is None else f"the mean step is {ratio:.3g} times"
    parted += "" if ratio is None else " the median one"
    if not stalls.share:
        return flag_text("spread_steps", ratio=parted)
    when = f"every {stalls.period} steps" if stalls.period else f"in {100 * stalls.share:.2g} % of the steps"
    return flag_text("stalls", when=when, longer=format_seconds(stalls.extra_s), ratio=parted)


def set_aside_flags(found: Sequence[SetAside]) -> list[str]:
    """Return the flag of a trial of which lines of records are not used."""
    return [flag_text("set_aside", reasons=reasons_counted(found))] if found else []


def counted(flags: Sequence[Sequence[str]], noise: Sequence[Mapping[str, float | None]] = ()) -> list[str]:
    """Return every flag of some launches with how many have it, and how much of what it is about.

    Args:
        flags: of each launch, as its record keeps them.
        noise: of each launch; empty if unknown.
    """
    found = []
    crowded = stored("overcommitted")
    for flag in sorted({flag for own in flags for flag in own if flag != crowded}, key=stored_flag_text):
        having = [index for index, own in enumerate(flags) if flag in own]
        much = amount(flag, [noise[index] for index in having]) if noise else ""
        text = stored_flag_text(flag)
        found.append(f"{text} ({len(having)} of {len(flags)} launches{f': {much}' if much else ''})")
    return found


Varied = dict[tuple[str, str, Tuning], set[str]]
"""Names of options and of environment variables, by framework, strategy and tier."""


def varied_options(trials: Sequence[Trial]) -> Varied:
    """Return, by framework, strategy and tier, the options and environment variables that have more than one value.

    A variable that some of the trials leave unset has one value more.
    """
    of_each: dict[tuple[str, str, Tuning], list[dict[str, Any]]] = {}
    for trial in trials:
        settings = {**trial.options, **trial.environment_variables}
        of_each.setdefault((trial.framework, trial.strategy, trial.tuning), []).append(settings)
    return {
        key: {name for name in set().union(*settings) if len({each.get(name) for each in settings}) > 1}
        for key, settings in of_each.items()
    }


def varied_names(trial: Trial, varied: Varied) -> set[str]:
    """Return the options and variables in which trials of the framework, strategy and tier of ``trial`` differ."""
    return varied.get((trial.framework, trial.strategy, trial.tuning), set())
