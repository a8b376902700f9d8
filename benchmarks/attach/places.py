"""What attach knows of one training in each place where people start one, and whether it finds the slow rank.

::

    python benchmarks/attach/places.py [--places PLACE …] [--renew]

Two ranks train `scripts/one_slow_rank.py`, of which rank 1 sleeps for 20 ms in each forward pass. Nodes are network
namespaces of this machine with a real Slurm (`tests/launchers/cluster_bed.py`, root is needed); Ray's are two raylets.
`--renew` writes `places.csv`.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "launchers"))
from cluster_bed import HEAD, ClusterBed, running_bed
from kinds import libraries_python

from steptime.runner.preparation import ready_interpreter

HERE = Path(__file__).parent
RESULT = HERE / "places.csv"
SCRIPT = HERE / "scripts" / "one_slow_rank.py"
BATCH_SCRIPT = HERE.parents[1] / "examples" / "cluster" / "train.sbatch"
STEPTIME = (sys.executable, "-m", "steptime")
USUAL = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
RATE = re.compile(r"samples a second: ([\d.]+)")
PORT = 29_431

Ran = tuple[Sequence[Path], str]
"""Results, and what the ranks printed."""


def launcher(bed: ClusterBed, python: Path, rank: int) -> list[str]:
    """Return a node's launcher."""
    words = [str(python), "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    return [*words, "--node-rank", str(rank), "--master-addr", bed.address("n0"), "--master-port", str(PORT)]


def on_both(bed: ClusterBed, commands: Sequence[Sequence[str]], variables: dict[str, str] | None) -> str:
    """Run a command on each node at the same time; return what they printed, and end where one failed."""
    environment = bed.variables(USUAL) if variables is None else variables
    started = [
        subprocess.Popen(
            bed.command(f"n{rank}", command),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]
    printed = [process.communicate(timeout=300)[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("\n".join(printed))
    return "\n".join(printed)


def nodes(bed: ClusterBed, folder: Path, python: Path, names: Sequence[str]) -> Ran:
    """Attach to the launcher of each node, with results folders of these names."""
    commands = [
        [*STEPTIME, "attach", "-o", str(folder / name), "--", *launcher(bed, python, rank), str(SCRIPT)]
        for rank, name in enumerate(names)
    ]
    return [folder / name for name in dict.fromkeys(names)], on_both(bed, commands, None)


def own_folders(bed: ClusterBed, folder: Path, python: Path) -> Ran:
    """An attach on each node, a folder each."""
    return nodes(bed, folder, python, ("first", "second"))


def shared_folder(bed: ClusterBed, folder: Path, python: Path) -> Ran:
    """An attach on each node, one folder."""
    return nodes(bed, folder, python, ("shared", "shared"))


def variables_of(folder: Path) -> dict[str, str]:
    """Return the variables that attach what somebody else starts."""
    words = [*STEPTIME, "attach", "--environment", "--format", "json", "-o", str(folder / "runs")]
    return dict(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


def variables_alone(bed: ClusterBed, folder: Path, python: Path) -> Ran:
    """As in pods: no steptime on the nodes, and nothing in the environment but the two variables and the usual."""
    variables = {"PATH": os.defpath, "HOME": str(folder), **USUAL, **variables_of(folder)}
    printed = on_both(bed, [[*launcher(bed, python, rank), str(SCRIPT)] for rank in range(2)], variables)
    return [folder / "runs"], printed


def slurm(bed: ClusterBed, folder: Path, python: Path) -> Ran:
    """The example of a batch script, submitted."""
    for name, words in {"python": [str(python)], "steptime": STEPTIME}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (folder / name).chmod(0o700)
    variables = {**USUAL, "PATH": os.pathsep.join([str(folder), bed.variables()["PATH"]])}
    done = bed.run(
        *("sbatch", "--wait", "-o", "output", "-D", str(folder), str(BATCH_SCRIPT), str(SCRIPT)),
        node=HEAD,
        environment=variables,
        limit_s=300.0,
    )
    output = (folder / "output").read_text()
    if done.returncode:
        sys.exit(done.stderr + output)
    return list((folder / "steptime-results").iterdir()), output


def ray(_: ClusterBed, folder: Path, __: Path) -> Ran:
    """Workers of a TorchTrainer on two raylets, attached by the runtime environment."""
    variables = variables_of(folder)
    words = [
        str(libraries_python("pytorch-ray")),
        str(SCRIPT),
        "ray",
        variables["PYTHONPATH"],
        variables["STEPTIME_ATTACH"],
    ]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout)
    return [folder / "runs"], done.stdout


def row_of(place: str, how: str, ran: Ran) -> dict[str, Any]:
    """Return what the report of a place's results knows."""
    words = [*STEPTIME, "report", *map(str, ran[0]), "--json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["attached"]
    parts = {part["name"]: part for part in found["parts"]}
    forward = parts["forward"]["ranks_s"]
    samples = found["throughput"]["samples"]["per_s"]
    own = RATE.findall(ran[1])
    sentences = {finding["kind"]: finding["sentence"] for finding in found["findings"]}
    return {
        "place": place,
        "how": how,
        "ranks": f"{len(found['ranks'])} of {found['world']}",
        "hosts": len({rank["host"] for rank in found["ranks"]}),
        "steps": found["steps"],
        "own_samples_per_s": own[-1] if own else "",
        "samples_per_s": f"{samples['value']:.0f} ({samples['low']:.0f} to {samples['high']:.0f})",
        "forward_longer_ms": f"{1e3 * (forward[1] - forward[0]):.1f}",
        "rank_0_waits_ms": f"{1e3 * parts['sync_wait']['ranks_s'][0]:.1f}",
        "straggler": sentences.get("straggler") or sentences.get("waiting") or "not named",
        "not_known": ", ".join(name for name, part in parts.items() if part["time_s"]["value"] is None),
        "clocks_within_us": "" if (error := found["clock_uncertainty_s"]) is None else f"{1e6 * error:.0f}",
        "load": f"{os.getloadavg()[0]:.1f}",
    }


PLACES: dict[str, tuple[str, Callable[[ClusterBed, Path, Path], Ran]]] = {
    "two nodes, own folders": ("attach -- torchrun on each; report A B", own_folders),
    "two nodes, one folder": ("attach -o SHARED -- torchrun on each", shared_folder),
    "two nodes, variables alone": ("env of attach --environment; torchrun on each", variables_alone),
    "Slurm": ("sbatch examples/cluster/train.sbatch: attach -- srun", slurm),
    "Ray Train, two raylets": ("runtime_env with the variables", ray),
}


def main() -> None:
    """Run all places, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", nargs="+", choices=[*PLACES], default=[*PLACES])
    parser.add_argument("--renew", action="store_true")
    options = parser.parse_args()
    python = ready_interpreter("pytorch")
    if python is None:
        sys.exit("no environment for pytorch: run 'steptime env create pytorch'")
    rows = {row["place"]: row for row in csv.DictReader(RESULT.read_text().splitlines())} if RESULT.exists() else {}
    with tempfile.TemporaryDirectory() as name, running_bed(2) as bed:
        for number, place in enumerate(options.places):
            own = Path(name) / str(number)
            own.mkdir()
            how, run = PLACES[place]
            rows[place] = row_of(place, how, run(bed, own, python))
            print(json.dumps(rows[place], indent=1), flush=True)
    if options.renew:
        ordered = [rows[place] for place in PLACES if place in rows]
        with RESULT.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ordered[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(ordered)


if __name__ == "__main__":
    main()
