"""Tables of curves for tests: rows as text, and curves with a known truth."""

from pathlib import Path

from steptime.curves.curve import ScalingCurve
from steptime.curves.table import COLUMNS, read_curves

USUAL = {
    "curve": "one",
    "source": "somewhere",
    "framework": "PyTorch DDP",
    "strategy": "allreduce",
    "workload": "resnet50",
    "data": "synthetic",
    "precision": "fp32",
    "accelerator": "V100",
    "workers_per_host": "8",
    "intra_host_link": "nvlink",
    "transport": "rdma",
    "inter_host_gbps": "100",
    "nics_per_host": "1",
    "parameter_servers": "0",
    "batch_per_worker": "64",
    "role": "fit",
}


def row(workers, step_time, role="fit", **changes):
    """Return one row of a table."""
    batch = float(changes.get("batch_per_worker", USUAL["batch_per_worker"]))
    rate = str(batch * workers / step_time)
    return {**USUAL, "workers": str(workers), "throughput_samples_per_s": rate, "role": role, **changes}


def write(folder: Path, rows, columns=COLUMNS) -> Path:
    """Write rows as CSV."""
    path = folder / "points.csv"
    lines = [",".join(columns), *(",".join(str(one.get(column, "")) for column in columns) for one in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def curve(folder: Path, seconds, holdout=(), **changes) -> ScalingCurve:
    """Return one curve from {workers: seconds}; those in ``holdout`` are to be predicted."""
    rows = [row(w, t, "holdout" if w in holdout else "fit", **changes) for w, t in seconds.items()]
    return read_curves(write(folder, rows))[0]
