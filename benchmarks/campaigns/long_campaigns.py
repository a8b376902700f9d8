"""Long campaigns on a bed of real Slurm nodes: time limits, other nodes, nodes that die, and preemption.

::

    python benchmarks/campaigns/long_campaigns.py [SCENE]...      # as root, with Debian's packages of Slurm and OpenSSH

Scenes:

- ``cut``: a study whose job has a time limit of a minute is cut, queued again by itself, and ends; after the first cut
  its first node is drained, so that the job goes on on other nodes. Its table stands next to that of an uncut one.
- ``spare``: a node dies under a study that has one to spare; it goes on.
- ``alone``: a node dies under a study that needs all of them; it ends, and says how to go on.
- ``preempted``: Slurm cancels the job during a launch; how long until nothing is left, and what was kept.

Slurm keeps a job that is queued again for two minutes; as root of the bed, this program ends that wait. The exit code
is 1 where a scene did not end as it should.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))

from cluster_bed import HEAD, ClusterBed, running_bed

from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import StepTime
from steptime.results.store import Store

_STEPTIME = [sys.executable, "-P", "-m", "steptime"]
_STUDY = """\
version: 1
name: campaign
workloads: [{{name: lenet5, batch_per_worker: 8}}]
frameworks: [reference]
workers: [1, 2, 3]
loaders: [synthetic]
equivalence: {{enabled: false}}
launches: {{min: {launches}, max: {launches}}}
seconds_per_launch: {seconds}
steps: {{warmup: 5, min: 5}}
time_limit: 60s
"""
_PATIENCE_S = 900.0
_LAUNCHES_OF_CUT = 10
"""So many of each trial take more than two jobs of a minute, which Slurm lets go on for somewhat longer."""
_ENDED = ("GONE", "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT")


def _milliseconds(step: StepTime) -> str:
    values = [step.mean, step.low, step.high]
    shown = ["?" if value is None else f"{1e3 * value:.2f}" for value in values]
    return f"{shown[0]} ms ({shown[1]} to {shown[2]})"


class Campaign:
    """One study on a bed, in a folder of its own."""

    def __init__(self, bed: ClusterBed, folder: Path, launches: int = 6, seconds: float = 3.0) -> None:
        self.bed = bed
        self.folder = folder
        folder.mkdir()
        self.study = folder / "study.yaml"
        self.study.write_text(_STUDY.format(launches=launches, seconds=seconds))
        self.results = folder / "results"

    def submit(self, *more: str) -> str:
        """Submit the study; return the number of its job."""
        done = self.bed.run(*_STEPTIME, "submit", str(self.study), *more, "-o", str(self.results))
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return done.stdout.partition("submitted as job ")[2].partition(";")[0]

    def state(self, job: str) -> str:
        """Return the state of a job, ``GONE`` where Slurm has forgotten it; ``UNKNOWN`` where it does not answer."""
        asked = self.bed.run("scontrol", "show", "job", job)
        if asked.returncode:
            return "GONE" if "Invalid job id" in asked.stdout + asked.stderr else "UNKNOWN"
        return asked.stdout.partition("JobState=")[2].split()[0]

    def count(self) -> int:
        """Return how many launches are kept."""
        return sum(len(path.read_text().splitlines()) for path in self.results.glob("trials/*/records.jsonl"))

    def await_(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; ends the program where it does not."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                message = f"{what}: not after {_PATIENCE_S:g} s\n{self.log()}"
                raise SystemExit(message)
            time.sleep(0.2)

    def log(self) -> str:
        """Return what the jobs wrote."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("results.job-*.log")))

    def rows(self) -> list[str]:
        """Return a line per trial: launches, blocks, step time and ratio."""
        store = Store.open(self.results)
        found = summarise(store)
        ratios = {place.trial: place.ratio_to_best.value for place in found.ranking}
        return [
            f"{trial.workers} workers: {_milliseconds(trial.step_time_s)}, {trial.launches} launches, blocks "
            f"{[each.block for each in store.launches(trial.id)]}, {trial.status}, rank ratio {ratios.get(trial.id)}"
            for trial in found.trials
        ]

    def processes(self) -> list[str]:
        """Return what runs of launches or of steptime on any node."""
        marks = ("start.py", "host_agent.py", "-m steptime")
        return [
            f"{node}: {line}"
            for node in self.bed.nodes
            for line in self.bed.processes(node)
            if any(mark in line for mark in marks)
        ]


def cut(bed: ClusterBed, folder: Path) -> bool:
    """Run the study uncut and cut; the second job of the cut one has other nodes."""
    uncut = Campaign(bed, folder / "uncut", _LAUNCHES_OF_CUT)
    job = uncut.submit("slurm.nodes=3", "slurm.time=1h")
    uncut.await_("the uncut study", lambda: uncut.state(job) in _ENDED)
    short = Campaign(bed, folder / "short", _LAUNCHES_OF_CUT)
    job = short.submit("slurm.nodes=3", "slurm.time=1m")
    requeues = 0
    while short.state(job) not in _ENDED:
        if short.state(job) == "PENDING" and "queued again" in short.log():
            requeues = json.loads((short.results / "requeues.json").read_text())["count"]
            if requeues == 1:
                bed.run("scontrol", "update", "NodeName=n0", "State=DRAIN", "Reason=campaign")
            bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            time.sleep(1.0)
        time.sleep(0.5)
    bed.run("scontrol", "update", "NodeName=n0", "State=RESUME")
    print(short.log())
    print("uncut:", *uncut.rows(), "cut:", *short.rows(), sep="\n  ")
    sites = summarise(Store.open(short.results)).sites
    print("sites:", *(f"{site.hosts} of {site.sources}: blocks {site.blocks}" for site in sites), sep="\n  ")
    print(f"queued again {requeues} times; launches: {uncut.count()} uncut, {short.count()} cut")
    return requeues >= 2 and uncut.count() == short.count()


def spare(bed: ClusterBed, folder: Path) -> bool:
    """Kill a node under a study with four nodes that needs three."""
    campaign = Campaign(bed, folder / "spare", launches=3)
    job = campaign.submit("slurm.nodes=4", "slurm.time=1h")
    campaign.await_("the first launches", lambda: campaign.count() >= 2)
    bed.kill("n1")
    campaign.await_("the end", lambda: campaign.state(job) in _ENDED)
    bed.revive("n1")
    print(campaign.log(), *campaign.rows(), sep="\n  ")
    return all("3 launches" in row for row in campaign.rows())


def alone(bed: ClusterBed, folder: Path) -> bool:
    """Kill a node under a study by ssh that needs all three."""
    campaign = Campaign(bed, folder / "alone", launches=3)
    command = [*_STEPTIME, "run", str(campaign.study), "hosts=[n0,n1,n2]", "launcher=ssh", "-o", str(campaign.results)]
    with (campaign.folder / "out").open("w") as out:
        run = subprocess.Popen(bed.command(HEAD, command), env=bed.variables(), stdout=out, stderr=out)
    campaign.await_("the first launches", lambda: campaign.count() >= 2)
    print(bed.run(*_STEPTIME, "status", str(campaign.results)).stdout)
    bed.kill("n1")
    code = run.wait(_PATIENCE_S)
    bed.revive("n1")
    said = (campaign.folder / "out").read_text()
    print(said, f"exit code {code}", sep="\n")
    again = bed.run(*command, limit_s=_PATIENCE_S)
    print("run again:", *campaign.rows(), f"exit code {again.returncode}", sep="\n  ")
    return said.splitlines()[-1].startswith("resume with: steptime run") and again.returncode == 0


def preempted(bed: ClusterBed, folder: Path) -> bool:
    """Cancel a job during a launch, as preemption does: SIGCONT and SIGTERM, and SIGKILL after KillWait."""
    campaign = Campaign(bed, folder / "preempted", seconds=10.0)
    job = campaign.submit("slurm.nodes=3", "slurm.time=1h")
    campaign.await_("the first launches", lambda: campaign.count() >= 1)
    time.sleep(5.0)
    kept, began = campaign.count(), time.monotonic()
    bed.run("scancel", job)
    campaign.await_("the end of the processes", lambda: not campaign.processes())
    took = time.monotonic() - began
    print(campaign.log())
    failed = [
        each.reason
        for trial in Store.open(campaign.results).trials()
        for each in Store.open(campaign.results).launches(trial.id)
        if each.status != "ok"
    ]
    print(f"nothing runs after {took:.1f} s; {kept} launches before, {campaign.count()} after, failed ones: {failed}")
    return campaign.count() >= kept and not failed


_SCENES = {scene.__name__: scene for scene in (cut, spare, alone, preempted)}


def main() -> None:
    """Run the scenes; exit code 1 where one did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(_SCENES)}; all by default")
    chosen = parser.parse_args().scenes or list(_SCENES)
    if unknown := set(chosen) - set(_SCENES):
        parser.error(f"there is no scene {', '.join(sorted(unknown))}; there are {', '.join(_SCENES)}")
    ended = {}
    with tempfile.TemporaryDirectory() as folder, running_bed(4) as bed:
        for name in chosen:
            print(f"== {name}", flush=True)
            ended[name] = _SCENES[name](bed, Path(folder))
            print(f"== {name}: {'as it should' if ended[name] else 'NOT as it should'}", flush=True)
    sys.exit(0 if all(ended.values()) else 1)


if __name__ == "__main__":
    main()
