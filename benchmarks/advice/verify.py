"""Verify the advice of all rules over frameworks: the rows of ``src/steptime/diagnosis/verified.csv``.

Each cell is broken down, ``steptime advise --verify`` verifies its findings, and the rows are added to the table.
A cell that is done is not repeated, so that the program goes on where it was stopped:

    .venv/bin/python benchmarks/advice/verify.py FOLDER [CELL…]
"""

import json
import subprocess
import sys
from pathlib import Path

from steptime.diagnosis.verification import PATH, read_verified, write_verified

ROOT = Path(__file__).parents[2]
MOST, LAUNCHES = 4, 4
BASE = {
    "version": 1,
    "launches": {"min": 3, "max": 3},
    "seconds_per_launch": 1,
    "breakdown": {"launches": 2, "seconds": 3},
    "equivalence": {"enabled": False},
}
LENET = {"name": "lenet5", "dataset": "digits"}
PHOTOS = {"name": "cifar_cnn", "dataset": "photos", "image": 32}


def cell(
    framework: str, strategy: str = "single", workers: int = 1, batch: int = 8, **changes: object
) -> dict[str, object]:
    """Return the study of one cell."""
    return {
        **BASE,
        "workloads": LENET,
        "frameworks": framework,
        "strategies": strategy,
        "workers": workers,
        "batch_per_worker": batch,
        **changes,
    }


CELLS: dict[str, dict[str, object]] = {
    "pytorch-threads": cell("pytorch", batch=64, threads_per_worker=4),
    "mxnet-photos": cell("mxnet", workloads=PHOTOS, batch=32),
    "chainer-photos": cell("chainer", workloads=PHOTOS, batch=32),
    "jax-1": cell("jax", batch=2),
    "reference-1": cell("reference", batch=2),
    "mxnet-1": cell("mxnet", batch=2),
    "chainer-1": cell("chainer", batch=2),
    "reference-2": cell("reference", "allreduce", 2, batch=2),
    "mxnet-ps": cell("mxnet", "ps_sync", 2, batch=2),
    "pytorch-1": cell("pytorch", batch=2),
    "paddle-1": cell("paddle", batch=2),
    "tensorflow-1": cell("tensorflow", batch=2),
    "jax-2": cell("jax", "allreduce", 2, batch=2),
    "chainer-2": cell("chainer", "allreduce", 2, batch=2),
    "pytorch-buckets": cell("pytorch", "allreduce", 2, options={"pytorch": {"bucket_mb": 0.01}}),
    "jax-photos": cell("jax", workloads=PHOTOS, batch=32),
    "tensorflow-2": cell("tensorflow", "allreduce", 2),
    "horovod_pytorch-2": cell("horovod_pytorch", "allreduce", 2),
    "deepspeed-2": cell("deepspeed", "zero1", 2),
    "pytorch-photos": cell("pytorch", workloads=PHOTOS, batch=32),
    "mxnet-threads": cell("mxnet", batch=64, threads_per_worker=4),
    "chainer-threads": cell("chainer", batch=64, threads_per_worker=4),
}


def main() -> None:
    """Run the cells that are named, or all, and add what was measured to the table."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or CELLS:
        place = folder / name
        rows = place / "results" / "advice" / "verified.csv"
        if rows.is_file():
            continue
        place.mkdir(parents=True, exist_ok=True)
        study = place / "study.yaml"
        study.write_text(json.dumps({**CELLS[name], "name": name}))
        program = [sys.executable, "-m", "steptime"]
        results = str(place / "results")
        measured = subprocess.run([*program, "run", str(study), "-o", results], cwd=ROOT, check=False)
        advice = [*program, "advise", results, "--verify", "--most", str(MOST), "--launches", str(LAUNCHES)]
        verified = subprocess.run(advice, cwd=ROOT, check=False)
        print(name, measured.returncode, verified.returncode, flush=True)
        if rows.is_file():
            write_verified(PATH, [*read_verified(), *read_verified(rows)])


if __name__ == "__main__":
    main()
