"""What becomes of shipped studies on four hosts: in Slurm, by ssh and by MPI, each by the command that a user types.

::

    python benchmarks/hosts/studies_across_hosts.py FOLDER [KEY=VALUE …] [--studies quickstart] [--ways slurm ssh mpi]
    python benchmarks/hosts/studies_across_hosts.py FOLDER --table

The hosts are nodes of a bed (real sshd and Slurm, see ``tests/launchers/cluster_bed.py``) with a fifth for a server of
its own. A results folder for each study and way goes into FOLDER; those that are there go on. KEY=VALUE changes the
studies, as it does for ``steptime run``. Needs root; prints a table in Markdown of the equivalence checks that held,
and of the launches that ended well, of all, by number of workers, which have a host each.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))
from cluster_bed import HEAD, ClusterBed, running_bed

from steptime.results.store import Store

STUDIES = ("quickstart", "cpu-cluster")
WAYS = ("slurm", "ssh", "mpi")
WORKERS = (1, 2, 4)
NODES = 5
LIMIT_S = 7200.0


def changes(way: str, bed: ClusterBed) -> list[str]:
    """Return what a user writes behind the study's name, to have it run on the nodes."""
    hosts = f"hosts={','.join(bed.nodes)}"
    return {"slurm": [f"slurm.nodes={NODES}"], "ssh": ["launcher=ssh", hosts], "mpi": ["launcher=mpi", hosts]}[way]


def run_study(bed: ClusterBed, study: str, way: str, folder: Path, more: list[str]) -> None:
    """Run or submit one study, and wait for its end; what it said goes to ``said.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [study, *changes(way, bed), f"workers={','.join(map(str, WORKERS))}", *more]
    verb = "submit" if way == "slurm" else "run"
    command = [sys.executable, "-m", "steptime", verb, *words, "-o", str(folder / "results")]
    done = bed.run(*command, node=HEAD, limit_s=LIMIT_S)
    (folder / "said.txt").write_text(f"$ {' '.join(command[2:])}\n{done.stdout}{done.stderr}")
    number = done.stdout.partition("submitted as job ")[2].partition(";")[0]
    deadline = time.monotonic() + LIMIT_S
    while number and bed.run("squeue", "-h", "-j", number).stdout.strip() and time.monotonic() < deadline:
        time.sleep(2.0)


def row(study: str, way: str, results: Path) -> str:
    """Return how many launches ended well, and why others did not."""
    good: Counter[int] = Counter()
    all_of_them: Counter[int] = Counter()
    reasons: Counter[str] = Counter()
    hosts: dict[int, set[int]] = {}
    store = Store.open(results)
    checks = store.equivalence()
    held = f"{sum(check.passed for check in checks)} of {len(checks)}" if checks else "not made"
    for trial in store.trials():
        for launch in store.launches(trial.id):
            all_of_them[trial.workers] += 1
            good[trial.workers] += launch.status == "ok"
            hosts.setdefault(trial.workers, set()).add(len((launch.cluster or {}).get("hosts", [])))
            if launch.status != "ok":
                reasons[f"{trial.framework} {trial.strategy}: {launch.reason}"] += 1
    cells = [
        f"{good[count]} of {all_of_them[count]} (hosts: {' or '.join(map(str, sorted(hosts.get(count, set()) - {0})))})"
        for count in WORKERS
    ]
    why = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
    return f"| {study} | {way} | {held} | {' | '.join(cells)} | {why} |"


def main() -> None:
    """Run the studies that are asked for, and print the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the bed is to be taken down
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--studies", nargs="*", default=STUDIES)
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--table", action="store_true", help="only print what is there")
    given = parser.parse_args()
    with contextlib.nullcontext() if given.table else running_bed(NODES) as bed:
        for study in given.studies if bed else ():
            for way in given.ways:
                run_study(bed, study, way, given.folder.absolute() / f"{study}-{way}", given.changes)
    columns = ("study", "way", "checks held", *(f"{count} workers" for count in WORKERS), "failed")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for study in given.studies:
        for way in given.ways:
            results = given.folder / f"{study}-{way}" / "results"
            print(row(study, way, results) if Store.exists(results) else f"| {study} | {way} | not run | | | | |")


if __name__ == "__main__":
    main()
