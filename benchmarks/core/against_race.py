"""The race of against.py: one study of equal work by both versions, with environments made and no check kept.

The study is the quickstart's, or its first workload, with two launches of each trial of as many steps and without a
budget, so that both versions launch, check and replay the same. What counts is the processor time of all processes of a
run, those included that lose their parent, until each trial of the first workload has a launch, and until the end.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "chainer")
_EQUAL_WORK = (
    "launches.min=2", "launches.max=2", "seconds_per_launch=2", "steps.warmup=5", "steps.min=10", "budget=null"
)  # fmt: skip
STUDIES = {
    "lenet5": ["quickstart", 'workloads=[{"name":"lenet5","dataset":"digits","batch_per_worker":64}]', *_EQUAL_WORK],
    "quickstart": ["quickstart", *_EQUAL_WORK],
}
_KEPT = ("equivalence", "durations")
"""Of a cache: what a run learns from earlier ones."""
_SHARED = ("environments", "datasets", "wheels")
_FIRST = ("trials/*lenet5*/records.jsonl", 2 * len(FRAMEWORKS))
"""Of results: the records of the workload that is raced first, and its trials."""
_LOOKS_EVERY_S = 0.1
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): processes that lose their parent become children of this one."""


@dataclass(frozen=True)
class RaceCost:
    """Of one race, in seconds."""

    first_cpu_s: float
    """Until the first ranking."""
    first_wall_s: float
    cpu_s: float
    wall_s: float


def race_variables(variables: Mapping[str, str], folder: Path, made: Path | None) -> dict[str, str]:
    """Return the variables of races, whose cache is in a folder; of another cache it takes what was made there."""
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for name in _SHARED if made else ():
        if made and (made / name).exists() and not (cache / name).exists():
            (cache / name).symlink_to(made.resolve() / name)
    return {**variables, "STEPTIME_CACHE": str(cache)}


def make_environments(program: Path, variables: Mapping[str, str]) -> None:
    """Make what a version needs for races; that is not measured."""
    for words in (["env", "create", *FRAMEWORKS], ["data", "make", "digits", "photos"]):
        subprocess.run([program, *words], env=variables, stdout=subprocess.DEVNULL, check=True)


def race_cost(program: Path, words: Sequence[str], variables: Mapping[str, str]) -> RaceCost:
    """Run a race into a folder that does not stay.

    Raises RuntimeError where it fails, or a trial of the first workload has no launch.
    """
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for name in _KEPT:
        shutil.rmtree(Path(variables["STEPTIME_CACHE"]) / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(program), "run", *words, "-o", f"{scratch}/race"]
        began, first = time.perf_counter(), (0.0, 0.0)
        log = Path(scratch) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=dict(variables))
        while not first[1] and not _is_over(process.pid):
            if _can_be_ranked(Path(scratch) / "race"):
                first = (_cpu_s_of_tree(process.pid), time.perf_counter() - began)
            time.sleep(_LOOKS_EVERY_S)
        cpu_s, code = _ended(process.pid)
        wall_s = time.perf_counter() - began
        if code or not first[1]:
            message = f"{' '.join(command)} ended with {code}:\n{log.read_text()[-2000:]}"
            raise RuntimeError(message)
    return RaceCost(*first, cpu_s, wall_s)


def _is_over(pid: int) -> bool:
    """Return whether a process has ended, and leave it to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _can_be_ranked(results: Path) -> bool:
    pattern, trials = _FIRST
    return sum(each.stat().st_size > 0 for each in results.glob(pattern)) >= trials


def _cpu_s_of_tree(pid: int) -> float:
    """Return the processor seconds of a process and of all below it, those that have ended included."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for each in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:4])  # with its children that were waited for
    return total


def _ended(pid: int) -> tuple[float, int]:
    """Wait for a process and for those that lost their parent; return their processor seconds, and its exit code."""
    cpu_s, code = 0.0, None
    until = None
    while until is None or time.monotonic() < until:
        try:
            found, status, usage = os.wait4(-1, 0 if code is None else os.WNOHANG)
        except ChildProcessError:
            break
        if not found:
            time.sleep(0.05)
            continue
        cpu_s += usage.ru_utime + usage.ru_stime
        if found == pid:
            code, until = os.waitstatus_to_exitcode(status), time.monotonic() + 5.0
    return cpu_s, code if code is not None else -1
