"""What is lost and what is left when a command of steptime is ended by a signal at random moments.

``campaign.py`` does everything else to a running study: it kills what a study started and what it runs on.

::

    python benchmarks/faults/kills.py                      # 200 SIGKILL, 50 SIGTERM, 50 SIGHUP
    python benchmarks/faults/kills.py --sigkill 3 --sigterm 3 --sighup 3 --scenarios run env

Six scenarios take turns: ``run`` (timed launches), ``check`` (equivalence checks with an empty cache), ``breakdown``,
``emulated`` (hosts with namespaces and control groups, where this machine allows them), ``net``, and ``env``
(``steptime env create`` of a framework whose installer starts a compiler of its own). Each command
is begun, killed after a random part of the time that it takes, and begun again, so that every command but the first of
a folder resumes what a kill has left. After every kill this program counts

- lines of records that were there before and are not any more (the record in flight may miss);
- processes that still run after ten seconds, found by a variable that all of them inherit;
- locks that are still held after these ten seconds (a process that ends gives up its memory, with the variable, an
  instant before its locks);
- for SIGTERM and SIGHUP: another exit code than 128 and the signal's number, a traceback, a missing command to go on.

At the end of a scenario its command runs to its end; then nothing may be missing in the results, and no namespace,
control group or temporary file may be left. The exit code is 1 if anything was lost or left.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remnants import lines_of_records, living_processes, write_plugin

from steptime.interruption import Interrupted, obeyed
from steptime.launchers.emulation.control_groups import find_groups
from steptime.launchers.emulation.network import NAMESPACES
from steptime.launchers.emulation.verification import missing_requirement

_TOKEN = "STEPTIMES_KILLER"  # noqa: S105 - the name of a variable; launches drop those that begin with STEPTIME_
_PATIENCE_S = 10.0
_KILLS_OF_A_FOLDER = 5
"""After which the command runs to its end, and begins anew in another folder."""
_STUDY = """\
version: 1
name: killed
frameworks: [reference]
workloads: [{name: lenet5, batch_per_worker: 2}]
strategies: [single, allreduce]
loaders: [synthetic]
workers: [1, 2]
exclude: [{strategies: allreduce, workers: 1}]
launches: {min: 4, max: 4}
seconds_per_launch: 0.05
steps: {warmup: 1, min: 1, max: 5}
"""
_SCENARIOS = {
    "run": _STUDY + "equivalence: {enabled: false}\n",
    "check": _STUDY.replace("min: 4, max: 4", "min: 1, max: 1") + "equivalence: {steps: 1, repeats: 1}\n",
    "breakdown": _STUDY.replace("min: 4, max: 4", "min: 1, max: 1")
    + "equivalence: {enabled: false}\nbreakdown: {launches: 2, seconds: 0.1}\n",
    "emulated": _STUDY.replace("min: 4, max: 4", "min: 1, max: 1")
    + "equivalence: {enabled: false}\nlauncher: emulated\ncluster: {hosts: 2}\n",
}
_MANIFEST = """\
title = "Slow to build"
distribution = "slow-build"
python = ["{python}"]
finish = ["build.py"]
strategies = {{single = {{}}}}
"""
_BUILD = """\
import subprocess, sys, time
compiler = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(compiler, start_new_session=True)
time.sleep(1.0)
"""
"""An installer whose compiler outlives it, in a session of its own."""


@dataclass
class Command:
    """One command that is killed again and again, in a folder of its own."""

    scenario: str
    folder: Path
    usual_s: float = 0.0
    """How long it takes from its beginning."""
    pids: set[int] = field(default_factory=set)
    """The processes that were started."""

    @property
    def arguments(self) -> list[str]:
        """What is given to ``steptime``."""
        if self.scenario == "env":
            return ["env", "create", "slow_build"]
        if self.scenario == "net":
            return ["net", "star", "--sizes", "1KiB,4KiB", "--launches", "3", "--repeats", "5", "-o", "results"]
        return ["run", "study.yaml", "-o", "results"]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the command, which all its processes inherit."""
        own = {
            "STEPTIME_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.folder / "temporary"),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(self.folder / "plugin")])),
            _TOKEN: str(self.folder),
        }
        return {**os.environ, **own}

    def prepare(self) -> None:
        """Make the folder with all that the command reads."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "temporary").mkdir(parents=True)
        if self.scenario in _SCENARIOS:
            (self.folder / "study.yaml").write_text(_SCENARIOS[self.scenario])
        if self.scenario == "env":
            self._write_plugin(self.folder / "plugin")

    def start(self) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            [sys.executable, "-m", "steptime", *self.arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def records(self) -> Counter[tuple[str, str]]:
        """Return every whole line of every record file, and the marker of a complete environment."""
        found = lines_of_records(self.folder / "results")
        found.update((str(path), path.read_text()) for path in self.folder.glob("cache/environments/*/ready.json"))
        return found

    def is_whole(self) -> bool:
        """Say whether the results hold all that the command was asked for, every line a record."""
        lines: Counter[str] = Counter()
        for path, line in self.records():
            json.loads(line)
            lines[Path(path).name] += 1
        wanted = {
            "run": {"records.jsonl": 8},
            "check": {"records.jsonl": 2},
            "emulated": {"records.jsonl": 2},
            "breakdown": {"records.jsonl": 2, "ablation.jsonl": 4},
            "net": {"net.jsonl": 3},
            "env": {"ready.json": 1},
        }[self.scenario]
        return all(lines[name] == count for name, count in wanted.items())

    def held_locks(self) -> list[Path]:
        """Return the locks that somebody still holds."""
        return [path for path in self._locks() if not _is_free(path)]

    def _locks(self) -> Iterator[Path]:
        yield from self.folder.glob("results/run.lock")
        yield from self.folder.glob("cache/environments/.locks/*")

    @staticmethod
    def _write_plugin(folder: Path) -> None:
        package = folder / "slow_build"
        package.mkdir(parents=True)
        write_plugin(folder, "slow_build")
        (package / "__init__.py").touch()
        (package / "adapter.py").touch()
        (package / "requirements.txt").write_text("# nothing\n")
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (package / "framework.toml").write_text(_MANIFEST.format(python=python))
        (package / "build.py").write_text(_BUILD)


@dataclass
class Findings:
    """What was counted."""

    kills: Counter[str] = field(default_factory=Counter)
    """By scenario and signal."""
    ended_before: int = 0
    """Commands that ended by themselves before their signal came."""
    slowest_end_s: float = 0.0
    """From a signal to the end of the last process."""
    faults: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the findings as they are printed."""
        return {
            "kills": dict(sorted(self.kills.items())),
            "ended_before_the_signal": self.ended_before,
            "slowest_end_s": round(self.slowest_end_s, 2),
            "faults": self.faults,
        }


def _is_free(lock: Path) -> bool:
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def processes_of(folder: Path) -> list[str]:
    """Return the processes that inherited a command's variable, zombies left out."""
    return [str(process) for process in living_processes() if process.variables.get(_TOKEN) == str(folder)]


def kill_once(command: Command, number: signal.Signals, delay_s: float, findings: Findings) -> None:
    """Start the command, send a signal after a while, and count what is lost and what is left."""
    what = f"{command.scenario}, {number.name} after {delay_s:.2f} s"
    running = command.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(delay_s)
    before = command.records()
    running.send_signal(number)
    sent = time.monotonic()
    command.pids.add(running.pid)
    try:
        said = running.communicate(timeout=60.0)[1]
    except subprocess.TimeoutExpired:
        running.kill()
        findings.faults.append(f"{what}: still running after a minute")
        said = running.communicate()[1]
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        left, held = processes_of(command.folder), command.held_locks()
        if not (left or held) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    findings.kills[f"{command.scenario} {number.name}"] += 1
    findings.slowest_end_s = max(findings.slowest_end_s, time.monotonic() - sent)
    findings.faults += [f"{what}: left {each}" for each in left]
    findings.faults += [f"{what}: {path} is still locked" for path in held]
    findings.faults += [f"{what}: lost {line[:80]} of {path}" for path, line in before - command.records()]
    if "Traceback" in said:
        findings.faults.append(f"{what}: {said[-1500:]}")
    if running.returncode == 0:
        findings.ended_before += 1
    elif number is not signal.SIGKILL:
        findings.faults += _manners(what, running.returncode, number, said)
        findings.faults += [f"{what}: left {path}" for path in [*abandoned(command), *left_behind(running.pid)]]


def _manners(what: str, code: int, number: signal.Signals, said: str) -> list[str]:
    """Hold the exit code and the last words against what a signal must lead to."""
    if code == -number:  # before Python had read the program that installs the handlers
        return []
    faults = [] if code == 128 + number else [f"{what}: exit code {code}: {said[-500:]}"]
    if "steptime" not in said.rpartition("interrupted by")[2]:
        faults.append(f"{what}: no command to go on in {said[-300:]!r}")
    return faults


def complete(command: Command, findings: Findings) -> None:
    """Run the command to its end, and hold its results against what was asked for."""
    before = command.records()
    started = time.monotonic()
    running = command.start()
    command.pids.add(running.pid)
    try:
        said = running.communicate()[1]
    except BaseException:  # Ctrl-C
        running.kill()
        running.wait()
        raise
    command.usual_s = command.usual_s or time.monotonic() - started
    if running.returncode or not command.is_whole() or before - command.records():
        findings.faults.append(f"{command.scenario}: not completed, exit code {running.returncode}: {said[-1500:]}")
    findings.faults += [f"{command.scenario}: left {each}" for each in processes_of(command.folder)]
    there = [*abandoned(command), *(path for pid in command.pids for path in left_behind(pid))]
    findings.faults += [f"{command.scenario}: left {path}" for path in there]


def left_behind(pid: int | None = None) -> list[str]:
    """Return the namespaces and control groups that launches made and that are there, of one process or of all."""
    names = f"steptime-{pid or '*'}-*"
    groups = find_groups()
    folders = list(groups.root.glob(names)) if groups else []
    return [str(path) for path in [*NAMESPACES.glob(names), *folders]]


def main() -> int:
    """Kill, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigkill", type=int, default=200)
    parser.add_argument("--sigterm", type=int, default=50)
    parser.add_argument("--sighup", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    names = [*_SCENARIOS, "net", "env"]
    possible = [name for name in names if name != "emulated" or not missing_requirement()]
    parser.add_argument("--scenarios", nargs="+", choices=names, default=possible)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311 - reproducible, not secret
    numbers = [signal.SIGKILL] * arguments.sigkill + [signal.SIGTERM] * arguments.sigterm
    numbers += [signal.SIGHUP] * arguments.sighup
    chance.shuffle(numbers)
    findings = Findings()
    try:
        with obeyed():
            kill_all(arguments.scenarios, numbers, chance, findings)
    except Interrupted as stop:
        sys.stderr.write(f"ended early by {stop}\n")
    finally:
        print(json.dumps({"seed": arguments.seed, **findings.to_json()}, indent=1))
    return 1 if findings.faults else 0


def kill_all(
    scenarios: Sequence[str], numbers: Sequence[signal.Signals], chance: random.Random, findings: Findings
) -> None:
    """Send every signal of ``numbers`` to one of the scenarios in turn, each at a random moment."""
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        commands = [Command(name, Path(scratch, name)) for name in scenarios]
        for command in commands:
            command.prepare()
            complete(command, findings)
            command.prepare()
        for index, number in enumerate(numbers):
            command = commands[index % len(commands)]
            kill_once(command, number, chance.uniform(0.0, command.usual_s), findings)
            if index // len(commands) % _KILLS_OF_A_FOLDER == _KILLS_OF_A_FOLDER - 1:
                complete(command, findings)
                command.prepare()
            latest = findings.faults[-1] if findings.faults else "no fault"
            sys.stderr.write(f"{index + 1} of {len(numbers)} kills, {len(findings.faults)} faults: {latest}\n")
        for command in commands:
            complete(command, findings)


def abandoned(command: Command) -> list[Path]:
    """Return temporary and partial files that are there although the command has been completed."""
    return [*(command.folder / "temporary").iterdir(), *command.folder.rglob("*.partial")]


if __name__ == "__main__":
    sys.exit(main())
