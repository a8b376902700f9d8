"""Which strategies of which frameworks compute the same over two hosts as the reference does on one, by each launcher.

::

    python benchmarks/hosts/frameworks_across_hosts.py FOLDER [--frameworks pytorch jax] [--launchers ssh slurm mpi]
    python benchmarks/hosts/frameworks_across_hosts.py FOLDER --table

Every strategy of every installed framework trains LeNet-5 with two workers on two nodes of a bed (real sshd and Slurm,
see ``tests/launchers/cluster_bed.py``): equivalence check, one timed launch, one ablation launch. A server has a third
node for itself. A study for each framework and launcher goes into FOLDER, where what is there already is not repeated.
Meanwhile ``ss -ltnp`` on each node tells on which addresses the processes of the launches listen.
Needs root; prints two tables in Markdown.
"""

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))
from cluster_bed import HEAD, ClusterBed, running_bed

from steptime.analysis.ablation.breakdown import break_down
from steptime.catalog.choices import SINGLE, strategy_named
from steptime.catalog.manifest import load_manifests
from steptime.environments.kinds import find_ready
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.runner.preparation import environment_spec
from steptime.study.trial import Trial
from steptime.validity.verdicts import verdicts_of

STUDY = """\
version: 1
name: across
workloads: [{{name: lenet5, batch_per_worker: 8}}]
frameworks: {framework}
strategies: [{strategies}]
workers: 2
loaders: synthetic
device: cpu
launcher: {launcher}
{hosts}
launches: {{min: 1, max: 1}}
seconds_per_launch: 0.5
steps: {{warmup: 3, min: 5, max: 50}}
equivalence: {{steps: 7, repeats: 1}}
time_limit: 600
{more}
"""
WHOLE = "breakdown: {launches: 1, seconds: 1}"
CHECKS_ONLY = "budget: 1s"
"""In which one launch is begun at most."""
NODES = 3
LIMIT_S = 7200.0
LOOK_S = 1.0
LOOK = "ss -Hltnp; ls -l /proc/[0-9]*/cwd 2>/dev/null; true"
"""All listening sockets of a node with their processes, and the current folders of all its processes."""
LAUNCHERS = ("ssh", "slurm", "mpi")


def strategies_of(framework: str) -> list[str]:
    """Return the strategies of a framework for several workers."""
    return [name for name in load_manifests()[framework].strategies if name != SINGLE.name]


def address_kind(socket: str) -> str:
    """Return on what a socket listens: ``loopback``, ``the interface`` by which nodes talk, or ``every address``."""
    host = socket.rpartition(":")[0].removeprefix("[::ffff:").strip("[]").partition("%")[0]
    if host in {"0.0.0.0", "*", "::"}:  # noqa: S104 - as ss writes them
        return "every address"
    return "loopback" if host.startswith("127.") or host == "::1" else "the interface"


def sockets_of(said: str, framework: str) -> dict[str, Counter[str]]:
    """Return how many sockets the launches of each strategy have on a node, from what ``LOOK`` printed there."""
    folders = dict(re.findall(r"/proc/(\d+)/cwd -> (.*)", said))
    found: dict[str, Counter[str]] = {}
    for line in said.splitlines():
        folder = next((folders[pid] for pid in re.findall(r"pid=(\d+)", line) if pid in folders), "")
        for name in strategies_of(framework):
            if f"/{framework}-{name}-" in folder:
                found.setdefault(name, Counter())[address_kind(line.split()[3])] += 1
    return found


def watch(bed: ClusterBed, framework: str, ended: threading.Event, most: dict[str, Counter[str]]) -> None:
    """Keep the most sockets of a node that each strategy had at once, by address."""
    while not ended.wait(LOOK_S):
        for node in bed.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                for name, counts in sockets_of(bed.run("sh", "-c", LOOK, node=node).stdout, framework).items():
                    most[name] = most.get(name, Counter()) | counts


def run_study(bed: ClusterBed, framework: str, launcher: str, folder: Path, more: str) -> str:
    """Run the study of one framework by one launcher, with ``more`` keys; return what steptime said of its progress."""
    folder.mkdir(parents=True, exist_ok=True)
    study = folder / "across.yaml"
    hosts = "" if launcher == "slurm" else f"hosts: [{', '.join(bed.nodes)}]"
    names = ", ".join(strategies_of(framework))
    study.write_text(STUDY.format(framework=framework, launcher=launcher, hosts=hosts, strategies=names, more=more))
    command = [sys.executable, "-m", "steptime", "run", str(study), "-o", str(folder / "results")]
    if launcher == "slurm":
        command = ["salloc", "-Q", f"--nodelist={','.join(bed.nodes)}", "--exclusive", *command]
    ended, most = threading.Event(), dict[str, Counter[str]]()
    watcher = threading.Thread(target=watch, args=[bed, framework, ended, most])
    watcher.start()
    try:
        done = bed.run(*command, node=HEAD, limit_s=LIMIT_S)
    finally:
        ended.set()
        watcher.join()
    if most:
        (folder / "sockets.json").write_text(json.dumps(most))
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    return done.stderr


def verdict(store: Store, trial: Trial) -> str:
    """Say in a few words what became of one strategy."""
    checks = [each for each in store.equivalence() if each.strategy == trial.strategy]
    if not checks or not checks[-1].passed:
        said = verdicts_of(store).get(trial.id)
        return f"**{said['status']}**: {said['reason']}" if said else "not run"
    found = ["held"]
    launches = store.launches(trial.id)
    good = [each for each in launches if each.status == "ok"]
    if launches and not good:
        found.append(f"**not timed**: {launches[0].reason}")
    ablations = list(store.records(ABLATION, trial.id))
    if ablations:
        parts = break_down(trial, ablations, [])
        found.append(
            f"phases miss {parts.closure_error:.0%}" if parts else f"**not broken down**: {ablations[0].reason}"
        )
    return "; ".join([*found, *(["timed"] if good and not ablations else [])])


def cells(folder: Path, framework: str, launcher: str) -> Iterator[tuple[str, str]]:
    """Yield each strategy of a framework with what became of it by a launcher."""
    results = folder / f"{framework}-{launcher}" / "results"
    manifest = load_manifests()[framework]
    known: dict[str, str] = {}
    skipped: list[str] = []
    if Store.exists(results):
        store = Store.open(results)
        known = {trial.strategy: verdict(store, trial) for trial in store.trials()}
        skipped = (store.get("skipped") or {}).get("lines", [])
    for name in strategies_of(framework):
        refused = [line for line in skipped if f"'{name}'" in line or f" {name}" in line]
        if launcher == "mpi" and (strategy_named(name).servers or manifest.strategies[name].scheduler):
            yield name, "refused: needs servers, which an mpiexec does not start"
        else:
            yield name, known.get(name) or (f"refused: {refused[0]}" if refused else "not run")


def print_table(folder: Path, frameworks: list[str]) -> None:
    """Print what became of every strategy by every launcher."""
    print(f"| framework | strategy | {' | '.join(LAUNCHERS)} |\n|---|---|{'---|' * len(LAUNCHERS)}")
    for framework in frameworks:
        found = {launcher: dict(cells(folder, framework, launcher)) for launcher in LAUNCHERS}
        for strategy in strategies_of(framework):
            row = " | ".join(found[launcher][strategy] for launcher in LAUNCHERS)
            print(f"| {framework} | {strategy} | {row} |")


def print_sockets(folder: Path, frameworks: list[str]) -> None:
    """Print on which addresses the launches of each strategy listened."""
    print("\n| framework | strategy | launcher | most sockets of a node at once |\n|---|---|---|---|")
    for framework in frameworks:
        for launcher in LAUNCHERS:
            kept = folder / f"{framework}-{launcher}" / "sockets.json"
            for strategy, counts in json.loads(kept.read_text()).items() if kept.exists() else ():
                shown = ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
                print(f"| {framework} | {strategy} | {launcher} | {shown} |")


def main() -> None:
    """Run the studies that are asked for, and print the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the bed is to be taken down
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frameworks", nargs="*", help="all that are installed by default")
    parser.add_argument("--launchers", nargs="*", default=LAUNCHERS, choices=LAUNCHERS)
    parser.add_argument("--checks-only", action="store_true", help="time and take apart nothing")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    given = parser.parse_args()
    ready = [name for name, each in load_manifests().items() if find_ready(environment_spec(each))]
    frameworks = given.frameworks or ready
    bed_or_none = contextlib.nullcontext() if given.table else running_bed(NODES)
    with bed_or_none as bed:
        for launcher in given.launchers if bed else ():
            for framework in frameworks:
                where = given.folder.absolute() / f"{framework}-{launcher}"
                more = CHECKS_ONLY if given.checks_only else WHOLE
                said = run_study(bed, framework, launcher, where, more).strip().splitlines()
                print(f"{framework} by {launcher}: {said[-1] if said else 'said nothing'}", file=sys.stderr, flush=True)
    print_table(given.folder, frameworks)
    print_sockets(given.folder, frameworks)


if __name__ == "__main__":
    main()
