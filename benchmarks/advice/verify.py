"""Verify the advice of all rules over frameworks: the rows of ``src/steptime/diagnosis/verified.csv``.

Each cell is broken down, ``steptime advise --verify`` verifies its findings, and the rows are added to the table.
A cell that is done is not repeated, so that the program goes on where it was stopped:

    .venv/bin/python benchmarks/advice/verify.py FOLDER [CELL…]
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from steptime.diagnosis.tried_advice import PATH, VerifiedAdvice, read_verified, write_verified

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "steptime"]
MOST, LAUNCHES = 4, 3
BASE = {
    "version": 1,
    "launches": {"min": 3, "max": 3},
    "seconds_per_launch": 1,
    "breakdown": {"launches": 4, "seconds": 1},
    "equivalence": {"enabled": False},
}
LENET = {"name": "lenet5", "dataset": "digits"}
UPDATED: dict[str, object] = {
    "workloads": {"name": "autoencoder"},
    "optimizer": {"name": "adamw", "learning_rate": 0.001},
}
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
    "mxnet-1": cell("mxnet", batch=2),
    "pytorch-update": cell("pytorch", batch=4, **UPDATED),
    "paddle-update": cell("paddle", batch=4, **UPDATED),
    "mxnet-update": cell("mxnet", batch=4, **UPDATED),
    "deepspeed-update": cell("deepspeed", batch=4, **UPDATED),
    "horovod_pytorch-update": cell("horovod_pytorch", batch=4, **UPDATED),
    "jax-update": cell("jax", batch=4, **UPDATED),
    "tensorflow-update": cell("tensorflow", batch=4, **UPDATED),
    "chainer-update": cell("chainer", batch=4, **UPDATED),
    "horovod_tensorflow-update": cell("horovod_tensorflow", batch=4, **UPDATED),
    "horovod_mxnet-update": cell("horovod_mxnet", batch=4, **UPDATED),
    "reference-1": cell("reference", batch=1),
    "chainer-1": cell("chainer", batch=1),
    "pytorch-photos": cell("pytorch", workloads=PHOTOS, batch=32),
    "jax-photos": cell("jax", workloads=PHOTOS, batch=32),
    "paddle-photos": cell("paddle", workloads=PHOTOS, batch=32),
    "pytorch-buckets": cell("pytorch", "allreduce", 2, batch=1, options={"pytorch": {"bucket_mb": 0.01}}),
    "paddle-buckets": cell("paddle", "allreduce", 2, batch=1, options={"paddle": {"bucket_mb": 0.01}}),
    "horovod_pytorch-fusion": cell(
        "horovod_pytorch", "allreduce", 2, batch=1, options={"horovod_pytorch": {"fusion_mb": 0}}
    ),
    "deepspeed-buckets": cell("deepspeed", "zero1", 2, batch=1, options={"deepspeed": {"bucket_values": 1000}}),
    "jax-2": cell("jax", "allreduce", 2, batch=1),
    "tensorflow-2": cell("tensorflow", "allreduce", 2, batch=1),
    "mxnet-servers": cell("mxnet", "ps_sync", 2, batch=1),
    "pytorch-servers": cell("pytorch", "ps_sync", 2, batch=1),
    "chainer-2": cell("chainer", "allreduce", 2, batch=1),
    "reference-2": cell("reference", "allreduce", 2, batch=1),
    "pytorch-exchange": cell("pytorch", "allreduce", 2, batch=4, **UPDATED),
    "pytorch-1": cell("pytorch", batch=1),
    "paddle-1": cell("paddle", batch=1),
    "tensorflow-1": cell("tensorflow", batch=1),
}


def main() -> None:
    """Run the cells that are named, or all, and add what was measured to the table."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or CELLS:
        place = folder / name
        if (place / "results" / "advice" / "verified.csv").is_file():
            continue
        place.mkdir(parents=True, exist_ok=True)
        study = place / "study.yaml"
        study.write_text(json.dumps({**CELLS[name], "name": name}))
        run_steptime("run", study, "-o", place / "results")
        rows = verify_folder(place / "results")
        print(name, len(rows), flush=True)
        add_rows(rows)


def verify_folder(results: Path, most: int = MOST, seconds: float | None = None) -> list[VerifiedAdvice]:
    """Verify the first ``most`` findings of a results folder, and return what came of them."""
    run_steptime("advise", results, "--verify", "--most", most, "--launches", LAUNCHES, seconds=seconds)
    return read_verified(results / "advice" / "verified.csv")


def run_steptime(*words: object, seconds: float | None = None) -> None:
    """Run a command of steptime, which ends its workers where it takes more than ``seconds`` or is interrupted."""
    with subprocess.Popen([*PROGRAM, *map(str, words)], cwd=ROOT) as process:
        try:
            process.wait(seconds)
        except BaseException:
            process.terminate()
            raise


def add_rows(rows: Sequence[VerifiedAdvice]) -> None:
    """Add rows to the table."""
    if rows:
        write_verified(PATH, [*read_verified(), *rows])


if __name__ == "__main__":
    main()
