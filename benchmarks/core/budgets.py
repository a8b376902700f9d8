"""How well a budget bounds a run: real studies, small to large, one after the other.

::

    python benchmarks/core/budgets.py FOLDER [--table] [NAME ...]

Each row is one ``steptime run`` of a study within a budget, into a new folder; environments and data are made before
the clock starts. A row whose file is in FOLDER is not run again, and ``--table`` prints the rows as CSV. The clock is
that of the whole command, from its start to its exit.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("steptime"))
MOST_OVER = 1.1
"""Times its budget: what a run is to end within."""
LENET = "{name: lenet5, dataset: digits, batch_per_worker: 64}"
RESNET = "{name: resnet50, dataset: photos, image: 64, batch_per_worker: 8}"
TEXT = "{name: gpt2_tiny, dataset: text, batch_per_worker: 4}"
FOUR = "[pytorch, tensorflow, mxnet, chainer]"


@dataclass(frozen=True)
class Row:
    """One run: the seconds of its budget, and the keys of its study."""

    budget_s: int
    workloads: str
    frameworks: str
    keys: Sequence[str] = ("strategies: single", "workers: 1")


TWO = ("strategies: allreduce", "workers: 2")
BOTH = (
    "strategies: [single, allreduce]",
    "workers: [1, 2]",
    "exclude: [{strategies: allreduce, workers: 1}, {strategies: single, workers: 2}]",
)
ROWS = {
    "reference": Row(60, LENET, "reference"),
    "pytorch": Row(60, LENET, "pytorch"),
    "pytorch-two-workers": Row(60, LENET, "pytorch", TWO),
    "pytorch-both": Row(90, LENET, "pytorch", BOTH),
    "pytorch-breakdown": Row(120, LENET, "pytorch", (*TWO, "breakdown: true")),
    "four-frameworks": Row(120, LENET, FOUR),
    "check-does-not-fit": Row(60, RESNET, "tensorflow"),
    "resnet50": Row(90, RESNET, "pytorch", TWO),
    "gpt2": Row(60, TEXT, "pytorch", TWO),
    "asynchronous": Row(90, LENET, "[pytorch, tensorflow, mxnet]", ("strategies: ps_async", "workers: 2")),
    "synthetic-loader": Row(60, LENET, "[pytorch, chainer]", ("loaders: [synthetic, native]",)),
    "unchecked": Row(60, RESNET, "pytorch", ("equivalence: {enabled: false}",)),
    "training": Row(120, LENET, "pytorch", ("train: {epochs: 30, seeds: 3}",)),
    "breakdown-of-four": Row(180, LENET, FOUR, ("breakdown: true",)),
    "whole-race": Row(180, f"[{LENET}, {RESNET}]", FOUR),
    "loaders-alone": Row(120, LENET, "pytorch", ("loaders: [synthetic, native]", "loader_alone: true")),
    "whole-race-breakdown": Row(300, f"[{LENET}, {RESNET}]", FOUR, ("breakdown: true",)),
    "resnet50-in-four": Row(300, RESNET, FOUR, (*BOTH[:2], f"{BOTH[2][:-1]}, {{frameworks: mxnet, workers: 2}}]")),
    "transformers": Row(300, f"[{TEXT}, {TEXT.replace('gpt2', 'llama')}]", "[pytorch, tensorflow]"),
    "ten-minutes": Row(600, f"[{LENET}, {RESNET}]", FOUR, ("breakdown: true", "launches: {min: 3, max: 10}")),
}


def study_of(name: str, row: Row) -> str:
    """Return the text of a study file."""
    lines = [f"name: {name}", f"workloads: {row.workloads}", f"frameworks: {row.frameworks}", *row.keys]
    return "\n".join([*lines, f"budget: {row.budget_s}s", ""])


def run(name: str, row: Row, folder: Path) -> dict[str, object]:
    """Run a study and return what was seen of it."""
    study, results = folder / f"{name}.yaml", folder / name
    study.write_text(study_of(name, row))
    load_before, began = os.getloadavg()[0], time.monotonic()
    process = subprocess.run(
        [PROGRAM, "run", str(study), "-o", str(results), "--json"], capture_output=True, text=True, check=False
    )
    took_s = time.monotonic() - began
    (folder / f"{name}.txt").write_text(process.stderr + process.stdout)
    printed = process.stdout
    trials = json.loads(printed[printed.index("{") :])["trials"] if "{" in printed else []
    return {
        "run": name,
        "budget_s": row.budget_s,
        "took_s": round(took_s, 1),
        "times_budget": round(took_s / row.budget_s, 3),
        "exit_code": process.returncode,
        "trials": len(trials),
        "ok": sum(trial["status"] == "ok" for trial in trials),
        "launches": sum(trial["launches"] for trial in trials),
        "load_before": round(load_before, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    """Run what is missing and print the table; the exit code is 1 where a run was more than 10 % over its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows to run (default: all)")
    parser.add_argument("--table", action="store_true", help="run nothing; print what is there as CSV")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        subprocess.run([PROGRAM, "env", "create", "pytorch", "tensorflow", "mxnet", "chainer"], check=True)
        subprocess.run([PROGRAM, "data", "make", "digits", "photos", "text"], check=True)
    rows = []
    for name in arguments.names or ROWS:
        kept = arguments.folder / f"{name}.json"
        if not kept.exists() and not arguments.table:
            kept.write_text(json.dumps(run(name, ROWS[name], arguments.folder)))
        if kept.exists():
            rows.append(json.loads(kept.read_text()))
            if not arguments.table:
                sys.stdout.write(f"{rows[-1]}\n")
                sys.stdout.flush()
    if arguments.table and rows:
        table = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return int(any(each["times_budget"] > MOST_OVER for each in rows))


if __name__ == "__main__":
    sys.exit(main())
