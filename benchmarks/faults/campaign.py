"""Faults at random moments of a running study, and what they cost: nothing, if steptime keeps its word.

::

    python benchmarks/faults/campaign.py OUT --faults 500          # as root, with Debian's Slurm; resumable
    python benchmarks/faults/campaign.py OUT --only worker --sites ssh
    python benchmarks/faults/campaign.py OUT --numbers 17 18       # the same kinds, sites and moments again
    python benchmarks/faults/campaign.py OUT --part 1/3            # a third of them; others may run beside it
    python benchmarks/faults/campaign.py OUT --table               # the table of faults.csv

A study of two frameworks (the reference, and a stand-in with a server) runs on this machine, on two nodes by ssh, and
as a job of Slurm. Each fault has a number, from which and from the seed follow its kind, its site and its moment. It
happens to a command that goes on with the results of the faults before. Then the command's end is awaited and the fault
undone; after every fifth of a site the study runs to its end. Counted as broken is

- ``lost``: a line of records that was there at the moment of the fault, and is not any more;
- ``unreadable``: ``steptime report`` or ``steptime export`` fails or meets a damaged line;
- ``left``: a process that runs on a node ten seconds after the end of the command;
- ``ranked``: a launch that the fault met and that counts as good;
- ``stuck``: a command that does not end, a traceback, or a study that does not go on.

One line per fault is appended to OUT/outcomes.jsonl, with the commit of steptime that it happened to.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from judgement import at_once, bad_manners, is_measured, launch_of, unreadable
from kinds import FAKETIME, KINDS, Fault
from remnants import lines_of_records
from sites import LEAST, TRIALS, ClusterBed, OneMachine, Site, SlurmNodes, SshNodes

_FAULTS_OF_A_FOLDER = 5
_TRIES = 3
"""For a command that is hit by a fault before it ends."""
_BEFORE_LAUNCHES = 0.3
"""Of the study's time: the start of the command and the probe."""
_LONGEST_S = 300.0
_LEAST_WAIT_S = 120.0
"""For the end of a command that was hit: the probe gives a host 90 s for its first word."""
_DISK_BYTES = 16 << 20
_RESULTS_BYTES = 96 << 20
BROKEN = ("lost", "unreadable", "left", "ranked", "stuck")


class Campaign:
    """The faults of one seed, on the sites of one machine."""

    def __init__(self, sites: dict[str, Site], seed: int, patience_s: float) -> None:
        """Let faults happen on ``sites``; after ``patience_s`` no process may be left."""
        self._sites = sites
        self._seed = seed
        self._patience_s = patience_s
        self._usual_s: dict[str, float] = {}
        self._met: Counter[str] = Counter()

    def time_whole_studies(self) -> None:
        """Let the study run from its beginning to its end on every site: moments are shares of what that takes."""
        for name, site in self._sites.items():
            started, run = time.monotonic(), site.start()
            if run.wait(_LONGEST_S) is None:
                run.kill()
            self._usual_s[name] = time.monotonic() - started
            site.next_folder()

    def _fault(self, site: Site, kind: str, chance: random.Random) -> tuple[Fault, float, Counter[tuple[str, str]]]:
        """Let a fault happen to a command; return it, the share of the rest of the study, and the lines before it.

        Where the command ends before its moment, another one begins the study anew.
        """
        for attempt in range(_TRIES):
            if attempt:
                site.next_folder()
            left_s = self._left_s(site)
            fault = Fault(site, site.start(), chance)
            share = chance.random()
            fault.run.wait(share * left_s)
            before = lines_of_records(site.results)
            if fault.run.poll() is None:
                try:
                    KINDS[kind].happen(fault)
                except BaseException:
                    fault.run.kill()
                    fault.undo()
                    raise
            if fault.what or fault.run.poll() is None:
                break
            fault.undo()
        return fault, share, before

    def _left_s(self, site: Site) -> float:
        """Return about how long the rest of the study takes."""
        counted: Counter[str] = Counter()
        for path, line in lines_of_records(site.results):
            if path.endswith("records.jsonl"):
                counted[path] += json.loads(line)["status"] == "ok"
        done = sum(min(count, LEAST) for count in counted.values()) / (TRIALS * LEAST)
        return self._usual_s[site.name] * (_BEFORE_LAUNCHES + (1.0 - _BEFORE_LAUNCHES) * (1.0 - done))

    def run_one(self, number: int, kind: str, name: str) -> dict[str, Any]:
        """Let fault ``number`` happen and return its outcome."""
        site, chance = self._sites[name], random.Random(f"{self._seed}/{number}")  # noqa: S311 - reproducible
        broken: dict[str, list[str]] = {each: [] for each in BROKEN}
        started = time.monotonic()
        fault, share, before = self._fault(site, kind, chance)
        code = fault.run.wait(max(_LEAST_WAIT_S, 4.0 * self._usual_s[name]))
        if code is None and not (KINDS[kind].ends_run or name == "slurm"):
            broken["stuck"].append(f"still running: {fault.run.said()[-300:]}")
        if code is None:
            fault.run.kill()
        broken["left"] += self._left(site)
        fault.undo()
        mended = site.mend()
        broken["stuck"] += bad_manners(fault)
        broken["lost"] += [line[:120] for _, line in before - lines_of_records(site.results)]
        met, flagged = launch_of(fault, site.results)
        if fault.hits_launch and met == "ok" and not flagged:
            broken["ranked"].append(fault.what)
        broken["ranked"] += at_once(site.results) if fault.second else []
        broken["unreadable"] += unreadable(site.results)
        said = fault.run.said()[-400:]
        self._met[name] += 1
        if code == 0 or self._met[name] % _FAULTS_OF_A_FOLDER == 0:
            self._complete(site, broken)
            site.next_folder()
        return {
            "number": number,
            "seed": self._seed,
            "site": name,
            "kind": kind,
            "share": round(share, 4),
            "what": fault.what,
            "code": code,
            "launch": met,
            "flags": flagged,
            "seconds": round(time.monotonic() - started, 1),
            "mended": mended,
            "broken": {key: value for key, value in broken.items() if value},
            "said": said,
        }

    def _complete(self, site: Site, broken: dict[str, list[str]]) -> None:
        """Run the study to its end, and hold its results against what was asked for."""
        before = lines_of_records(site.results)
        for _ in range(3):  # a host that has just come back may need another try
            run = site.start()
            code = run.wait(900.0)
            if code is None:
                run.kill()
            if code in (0, 3):
                break
        launches: dict[str, Counter[str]] = {}
        for path, line in lines_of_records(site.results):
            if path.endswith("records.jsonl"):
                launches.setdefault(Path(path).parent.name, Counter())[json.loads(line)["status"]] += 1
        if len(launches) != TRIALS or not all(map(is_measured, launches.values())):
            broken["stuck"].append(f"not completed, exit code {code}, {launches}: {run.said()[-600:]}")
        broken["lost"] += [line[:120] for _, line in before - lines_of_records(site.results)]
        broken["unreadable"] += unreadable(site.results)
        broken["left"] += self._left(site)

    def _left(self, site: Site) -> list[str]:
        """Return the processes that run after the end of a command, once there are none or the time is up."""
        deadline = time.monotonic() + self._patience_s
        while (found := site.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        return [str(each) for each in found]


def planned(seed: int, count: int, names: Sequence[str], only: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return number, kind and site of each fault: all kinds on all sites equally often, in random order."""
    pairs = [(kind, name) for kind, each in KINDS.items() for name in each.sites]
    pairs = [pair for pair in pairs if pair != ("clock", "ssh") or FAKETIME.exists()]
    found: list[tuple[int, str, str]] = []
    while len(found) < count:
        turn = list(pairs)
        random.Random(f"{seed}/turn {len(found)}").shuffle(turn)  # noqa: S311 - reproducible, not secret
        found += [(len(found) + index, *pair) for index, pair in enumerate(turn)]
    return [each for each in found[:count] if each[2] in names and (not only or each[1] in only)]


@contextlib.contextmanager
def sites(names: Sequence[str]) -> Iterator[dict[str, Site]]:
    """Make the sites, on a small disk that all nodes share, and remove them in the end."""
    root = Path(tempfile.mkdtemp(prefix="faults-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_RESULTS_BYTES}", "results", root], check=True)  # noqa: S607
    bed = ClusterBed(2, _DISK_BYTES) if {"ssh", "slurm"} & set(names) else None
    made: dict[str, Site] = {}
    try:
        if "machine" in names:
            made["machine"] = OneMachine(root)
        if bed:
            bed.up()
            made |= {each.name: each(root, bed) for each in (SshNodes, SlurmNodes) if each.name in names}
        yield made
    finally:
        for each in made.values():
            each.down()
        if bed:
            bed.down()
        subprocess.run(["umount", "-l", root], check=False)  # noqa: S607
        root.rmdir()


def table(outcomes: Sequence[dict[str, Any]]) -> str:
    """Return the outcomes as a table in Markdown: a row for each kind and site."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for each in outcomes:
        row = rows.setdefault((each["kind"], each["site"]), Counter())
        row["faults" if each["what"] else "missed"] += 1
        row["met a launch"] += each["launch"] is not None
        row.update(each["broken"].keys())
    columns = ("faults", "met a launch", *BROKEN)
    order = {kind: index for index, kind in enumerate(KINDS)}
    lines = [f"| fault | site | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for (kind, site), row in sorted(rows.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        lines.append(f"| {kind} | {site} | {' | '.join(str(row[name]) for name in columns)} |")
    total = sum(rows.values(), Counter())
    lines.append(f"| all | | {' | '.join(str(total[name]) for name in columns)} |")
    return "\n".join(lines)


def _part(text: str) -> tuple[int, int]:
    first, step = map(int, text.split("/"))
    if not 1 <= first <= step:
        raise argparse.ArgumentTypeError(text)
    return first, step


def main() -> int:
    """Read the arguments, let the faults happen, and return 1 if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=[])
    parser.add_argument("--sites", nargs="+", choices=["machine", "ssh", "slurm"], default=["machine", "ssh", "slurm"])
    parser.add_argument("--numbers", nargs="+", type=int, help="only these faults, also where they have outcomes")
    parser.add_argument(
        "--part", type=_part, default=(1, 1), metavar="I/N", help="every Nth fault of those, from the Ith on"
    )
    parser.add_argument("--patience", type=float, default=10.0, help="seconds after which no process may be left")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no fault after so long")
    parser.add_argument("--table", action="store_true", help="print what is there, and let nothing happen")
    arguments = parser.parse_args()
    path = arguments.out / "outcomes.jsonl"
    before = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if arguments.table:
        print(table(before))
        return 0
    wanted = planned(arguments.seed, arguments.faults, arguments.sites, arguments.only)
    if arguments.numbers:
        wanted = [each for each in wanted if each[0] in arguments.numbers]
    else:
        there = {(each["seed"], each["number"]) for each in before}
        wanted = [each for each in wanted if (arguments.seed, each[0]) not in there]
    first, step = arguments.part
    wanted = wanted[first - 1 :: step]
    arguments.out.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "-C", Path(__file__).parent, "rev-parse", "--short", "HEAD"],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    deadline = time.monotonic() + arguments.minutes * 60.0
    bad = 0
    with sites(arguments.sites) as made, path.open("a", buffering=1) as file:
        campaign = Campaign(made, arguments.seed, arguments.patience)
        campaign.time_whole_studies()
        for number, kind, name in wanted:
            if time.monotonic() > deadline:
                break
            outcome = {**campaign.run_one(number, kind, name), "commit": commit}
            file.write(json.dumps(outcome) + "\n")
            bad += bool(outcome["broken"])
            shown = json.dumps(outcome["broken"])[:600] if outcome["broken"] else "nothing broken"
            sys.stderr.write(
                f"seed {arguments.seed} fault {number}, {kind} on {name} at {outcome['share']:.2f}: "
                f"{outcome['what'] or 'missed'}; launch {outcome['launch']}, exit code {outcome['code']}; {shown}\n"
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
