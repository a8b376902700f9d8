"""What `steptime predict` says of unchanged scripts on more workers, beside the measurement of exactly that.

::

    python benchmarks/attach/forecast.py FOLDER [--places local 200mbit] [--scripts mnist fsdp2]

The scripts are `scripts/held_out.py`. On this machine (`local`) two processes are forecast from one; on hosts with
links of a rate (root is needed) two from one, and four from one and from two. The hosts are those of
`benchmarks/hosts/forecast_across_hosts.py`: four nodes of a bed of Slurm on two cores, of which each has 45 %, so that
four compute as fast as one does. The commands are those that a user types: `attach`, `net`, `fit`, `predict`.
FOLDER holds the runs, each of which is made once. forecast.csv has a row for each cell; those are kept that are there,
and without the file all are forecast again from the same runs.
"""

import argparse
import contextlib
import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))
from forecast_across_hosts import checked, shaped_bed
from kinds import libraries_python

from steptime.launchers.emulation.control_groups import find_groups, new_owner
from steptime.runner.preparation import ready_interpreter

HERE = Path(__file__).parent
RESULT = HERE / "forecast.csv"
SCRIPT = HERE / "scripts" / "held_out.py"
SCRIPTS = ("mnist", "nanogpt", "trainer", "lightning", "torchvision", "fsdp2")
LOCAL = "local"
CELLS = {True: ((1, 2),), False: ((1, 2), (1, 4), (2, 4))}
"""Workers that are known and forecast, on this machine and on hosts."""
KEY = ("place", "script", "known", "asked")
STEPS = {True: 120, False: 60}
STEPTIME = (sys.executable, "-m", "steptime")
LOAD = "load"
"""A file with the average load before the run."""
ON_HOSTS = "RANK=$SLURM_PROCID LOCAL_RANK=0 exec {python} {script} {name}"
PORT = 29_417

Act = Callable[[Sequence[str]], None]


@contextlib.contextmanager
def place_of(name: str) -> Iterator[Act]:
    """Yield what runs a command of steptime there, and ends this program where the command fails."""
    if name != LOCAL:
        with shaped_bed(name) as bed:
            yield lambda words: print(checked(bed, list(words))[-200:], end="", file=sys.stderr)
        return
    groups, owner = find_groups(), new_owner()
    if groups is None:
        sys.exit("no control groups can be made here, so that others would take processor time from the runs")
    try:
        (group,) = groups.make(owner, [None])
        enter = ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$0" "$@"']
        yield lambda words: subprocess.run([*enter, *words], check=True, stdout=sys.stderr)
    finally:
        groups.remove(owner)


def command_of(place: str, script: str, workers: int, python: Path) -> list[str]:
    """Return the command that a user would attach to."""
    steps = f"STEPS={STEPS[place == LOCAL]}"
    settings = ["env", "OMP_NUM_THREADS=1", steps]
    if place != LOCAL:
        settings += [f"WORLD_SIZE={workers}", "MASTER_ADDR=n0", f"MASTER_PORT={PORT}"]
        shell = ON_HOSTS.format(python=python, script=SCRIPT, name=script)
        return [*settings, "srun", f"-N{workers}", "--ntasks-per-node=1", "sh", "-c", shell]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    # Sharding needs a group of processes, also of one.
    return [*settings, str(python), *(several if workers > 1 or script == "fsdp2" else []), str(SCRIPT), script]


def run(act: Act, folder: Path, place: str, script: str, workers: int, python: Path) -> None:  # noqa: PLR0913, PLR0917
    """Measure the link of a place once, and attach to a run there."""
    link = folder / place / "link"
    if not (link / "done").exists():
        where = ["--workers", "2"] if place == LOCAL else ["--hosts", "n0,n1", "--repeats", "20"]
        act([*STEPTIME, "net", "gloo", *where, "-o", str(link)])
        (link / "done").touch()
    results = results_of(folder, place, script, workers)
    shutil.rmtree(results, ignore_errors=True)
    load = os.getloadavg()[0]
    act([*STEPTIME, "attach", "-o", str(results), "--", *command_of(place, script, workers, python)])
    (results / "net.jsonl").write_bytes((link / "net.jsonl").read_bytes())
    (results / LOAD).write_text(f"{load:.1f}")


@cache
def said(*words: str) -> dict[str, Any]:
    """Return the JSON that a verb of steptime prints."""
    done = subprocess.run([*STEPTIME, *words], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def results_of(folder: Path, place: str, script: str, workers: int) -> Path:
    """Return the results folder of a run; it is whole once it has the file LOAD."""
    return folder / place / script / str(workers)


@cache
def forecasts_of(results: Path, asked: tuple[int, ...]) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return what is forecast by workers, and whether that would be refused because others kept the machine busy.

    That refusal is lifted: the control groups of the runs go before all others, who take what is left.
    """
    profile = results.with_name(f"{results.name}.profile.json")
    said("fit", str(results), "-o", str(profile), "--json")
    fitted = json.loads(profile.read_text())
    busy = (fitted["refused"] or "").startswith("others kept")
    if busy:
        profile.write_text(json.dumps({**fitted, "refused": None}))
    found = said("predict", str(profile), "--workers", ",".join(map(str, asked)), "--json")["predictions"]
    return {each["workers"]: each for each in found}, busy


def cell(folder: Path, place: str, script: str, known: int, asked: int) -> dict[str, Any]:
    """Return a row of the table."""
    before, after = (results_of(folder, place, script, workers) for workers in (known, asked))
    forecasts, busy = forecasts_of(before, tuple(each for start, each in CELLS[place == LOCAL] if start == known))
    forecast = forecasts[asked]
    found = [said("report", str(each), "--json")["attached"] for each in (before, after)]
    step, real = forecast["step_s"] or dict.fromkeys(("value", "low", "high")), found[1]["step_s"]
    numbers = {"forecast": step, "measured": real}
    shown = {
        f"{name}_{bound}_ms": "" if each[bound] is None else f"{1e3 * each[bound]:.1f}"
        for name, each in numbers.items()
        for bound in ("value", "low", "high")
    }
    known_step = step["value"] is not None
    return {
        "place": place,
        "script": script,
        "known": known,
        "asked": asked,
        **shown,
        "error": f"{step['value'] / real['value'] - 1.0:+.3f}" if known_step else "",
        "inside": step["low"] <= real["value"] <= step["high"] if known_step else "",
        "load": (after / LOAD).read_text(),
        "foreign_cores": f"{max(each['noise']['foreign_cpu_cores'] or 0.0 for each in found):.2f}",
        "busy": busy,
        "refused": forecast["refused"] or "",
    }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the median error and the share inside the intervals, of each script and of all."""
    for script in (*dict.fromkeys(row["script"] for row in rows), "all"):
        own = [row for row in rows if script in {row["script"], "all"}]
        told = [row for row in own if not row["refused"]]
        line = f"{script:12} {len(own):2} cells, {len(own) - len(told):2} refused"
        if told:
            errors = [abs(float(row["error"])) for row in told]
            inside = sum(str(row["inside"]) == "True" for row in told)
            bounds = stats.binomtest(inside, len(told)).proportion_ci(0.95)
            line += f"; error {statistics.median(errors):5.1%} (worst {max(errors):.0%}); "
            line += f"inside {inside} of {len(told)} (95 %: {bounds.low:.0%} to {bounds.high:.0%})"
        yield line


def table(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all cells that were measured; those of the file are kept whose runs are older than it."""
    kept: dict[tuple[str, ...], dict[str, Any]] = {}
    if RESULT.exists():
        with RESULT.open(newline="") as file:
            kept = {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}
    found = []
    for place in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        for script in SCRIPTS:
            for known, asked in CELLS[place == LOCAL]:
                loads = [results_of(folder, place, script, workers) / LOAD for workers in (known, asked)]
                if all(each.exists() for each in loads):
                    row = kept.get((place, script, str(known), str(asked)))
                    fresh = row and RESULT.stat().st_mtime > max(each.stat().st_mtime for each in loads)
                    found.append(row if row and fresh else cell(folder, place, script, known, asked))
    return found


def main() -> None:
    """Make the runs that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--places", nargs="*", default=[LOCAL, "200mbit"], help="local, and rates of links as tc's")
    parser.add_argument("--scripts", nargs="*", default=SCRIPTS, choices=SCRIPTS)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # groups and beds are to be removed
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for place in given.places:
        wanted = {script: {count for each in CELLS[place == LOCAL] for count in each} for script in given.scripts}
        missing = [
            (script, workers)
            for script, counts in wanted.items()
            for workers in sorted(counts)
            if not (results_of(folder, place, script, workers) / LOAD).exists()
        ]
        if missing:
            with place_of(place) as act:
                for script, workers in missing:
                    libraries = script in {"trainer", "lightning"}
                    python = libraries_python("pytorch") if libraries else ready_interpreter("pytorch")
                    run(act, folder, place, script, workers, python or sys.exit("run 'steptime env create pytorch'"))
    rows = table(folder)
    with RESULT.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*(f"{value!s:>9.9}" if name != "refused" else str(value) for name, value in row.items()))
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()
