"""What attach, DDP's own log and torch.profiler say of the same steps of one run, beside what was planted.

::

    python benchmarks/attach/beside_profilers.py --python PYTHON_WITH_TORCH -o beside_profilers.csv

Two ranks on this machine; each batch takes 20 ms to load, and rank 1's forward pass 15 ms more.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parent / "scripts" / "profiled.py"
STEPS = 60
OF_DDP = {"forward": "avg_forward_compute_time", "backward": "avg_backward_compute_time"}
"""Nanoseconds of DDP's log; its communication time is of the transfers themselves, hidden or not."""


def measure(python: Path, folder: Path) -> tuple[dict, list[dict]]:
    """Run the script attached; return the answer, and what each rank's log and profiler say."""
    launcher = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "steptime", "attach", "-o", str(folder / "results"), "--json", "--"]
    done = subprocess.run(
        [*command, *launcher, str(SCRIPT)],
        env={**os.environ, "STEPS": str(STEPS), "OUT": str(folder), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    said = [json.loads((folder / f"said-{rank}.json").read_text()) for rank in range(2)]
    return json.loads(done.stderr.splitlines()[-1]), said


def rows(found: dict, said: list[dict]) -> list[dict]:
    """Return a row for each part and rank, in milliseconds."""
    parts = {part["name"]: part["ranks_s"] for part in found["parts"] if part["ranks_s"]}
    table = []
    for rank, each in enumerate(said):
        ddp, profiler, planted = each["ddp"], each["profiler"], each["planted"]
        exchange = parts["comm_exposed"][rank] + parts["sync_wait"][rank]
        cells = {
            "input": (parts["input_wait"][rank], None, profiler["input"], 4 * planted["load"]),
            "forward": (
                parts["forward"][rank],
                ddp[OF_DDP["forward"]] * 1e-9,
                profiler["forward"],
                planted.get("slow"),
            ),
            "backward until the last gradient": (
                parts["backward"][rank],
                ddp[OF_DDP["backward"]] * 1e-9,
                None,
                None,
            ),
            "waiting for the other rank": (parts["sync_wait"][rank], None, None, None),
            "exchange behind the last gradient": (exchange, _exposed(ddp), None, None),
            "all-reduce, hidden or not": (None, ddp["avg_backward_comm_time"] * 1e-9, profiler["exchange"], None),
            "update": (parts["update"][rank], None, profiler["update"], None),
        }
        for part, values in cells.items():
            names = ("attach_ms", "ddp_log_ms", "profiler_ms", "planted_ms")
            shown = {
                name: "" if value is None else f"{1e3 * value:.2f}" for name, value in zip(names, values, strict=True)
            }
            table.append({"rank": rank, "part": part, **shown})
    return table


def _exposed(ddp: dict) -> float:
    return (ddp["avg_backward_comm_time"] - ddp["avg_backward_compute_comm_overlap_time"]) * 1e-9


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="with torch")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = rows(*measure(chosen.python.absolute(), Path(folder)))
    with chosen.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    for row in table:
        print("  ".join(f"{value:>12}" if key != "part" else f"{value:34}" for key, value in row.items()))


if __name__ == "__main__":
    main()
