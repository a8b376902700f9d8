"""Plant one cause at a time in real frameworks and scripts: is it found, and does its removal gain what was predicted?

Each plant is measured beside its clean twin, of which the rule must be silent. A change that the finding names is
verified by ``steptime advise --verify``; what the removal of the cause itself gains (``removed``) is that of the twin,
which of a script is the change. A plant that is done is not repeated, so that the program goes on where it was stopped;
one that the rule ``noise`` drowned gets as many launches again:

    .venv/bin/python benchmarks/advice/planted.py FOLDER [PLANT…]
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from verify import BASE, PHOTOS, PROGRAM, ROOT, UPDATED, add_rows, cell, verify_folder

from steptime.cli.reported_results import ReportedResults, read_report
from steptime.diagnosis.form import TrialFinding
from steptime.diagnosis.tried_advice import VerifiedAdvice, read_verified
from steptime.diagnosis.workers import NOISE
from steptime.results.json_form import Interval
from steptime.results.record_kinds import TIMING
from steptime.runner.preparation import ready_interpreter
from steptime.statistics.comparison import compare
from steptime.statistics.estimate import estimate

TABLE = Path(__file__).with_suffix(".csv")
LAUNCHES = 3
COLUMNS = (
    "plant",
    "cause",
    "framework",
    "rule",
    "fired",
    "other_rules",
    "predicted",
    "predicted_low",
    "predicted_high",
    "verified",
    "verified_low",
    "verified_high",
    "removed",
    "removed_low",
    "removed_high",
    "clean_silent",
    "clean_rules",
    "load",
    "rules",
)
"""``rules`` is the commit of the rules that spoke of a cause that nobody had tried with them; empty of older causes."""
SCRIPT = Path(__file__).with_name("planted_script.py").relative_to(ROOT)
FURTHER = Path(__file__).with_name("planted_further_script.py").relative_to(ROOT)
GROUP = Path("/sys/fs/cgroup/cpu")
"""Of control groups of the first version; where it is missing, no quota is planted."""
SLOW_LINK = {"hosts": 2, "bandwidth": "20Mbit/s"}
QUICK_LINK = {"hosts": 2, "bandwidth": "1Gbit/s"}


@dataclass(frozen=True)
class Plant:
    """A cause, and the same without it."""

    cause: str
    rule: str
    """That must find it."""
    framework: str
    clean: dict[str, object]
    """The study of the twin; of a script, nothing."""
    planted: dict[str, object] = field(default_factory=dict)
    """Keys of the study that plant the cause."""
    script: tuple[str, str] | None = None
    """Commands with the cause and without it."""
    quota: float | None = None
    """Cores that a control group leaves the planted launches."""
    net: bool = False
    """Whether links are measured into the planted folder, of which the rule needs the bandwidth."""


def hosts(cluster: dict[str, object]) -> dict[str, object]:
    """Return the keys by which a study trains on emulated hosts."""
    return {"launcher": "emulated", "cluster": cluster}


def further(cause: str, name: str, rule: str, workers: int = 1, *, heavy: bool = False) -> Plant:
    """Return a plant of the second script, of so many workers."""
    start = f"{'python' if workers == 1 else f'torchrun --nproc-per-node {workers}'} {FURTHER}"
    planted, clean = (f"{start} {each}{' heavy' if heavy else ''}" for each in (name, "clean"))
    return Plant(cause, rule, "own script", {}, script=(planted, clean))


DDP = cell("pytorch", "allreduce", 2, batch=16)
PLANTS: dict[str, Plant] = {
    "small-buckets": Plant(
        "DDP buckets of 10 KiB",
        "latency_bound",
        "pytorch",
        DDP,
        {"options": {"pytorch": {"bucket_mb": 0.01}}},
    ),
    "slow-host": Plant(
        "one of two hosts has half a core",
        "straggler",
        "pytorch",
        cell("pytorch", "allreduce", 2, batch=64, workloads={"name": "cifar_cnn"}, **hosts(QUICK_LINK)),
        hosts({**QUICK_LINK, "cpu_share": {1: "50%"}}),
    ),
    "slow-link": Plant(
        "a link of 20 Mbit/s",
        "bandwidth_bound",
        "horovod_pytorch",
        cell("horovod_pytorch", "allreduce", 2, batch=64, **hosts(QUICK_LINK)),
        hosts(SLOW_LINK),
        net=True,
    ),
    "slow-server": Plant(
        "a server behind 20 Mbit/s",
        "server_saturation",
        "mxnet",
        cell("mxnet", "ps_sync", 2, batch=64, **hosts(QUICK_LINK)),
        hosts(SLOW_LINK),
    ),
    "slow-loader": Plant(
        "JPEG images decoded between steps",
        "input_bound",
        "paddle",
        cell(
            "paddle",
            workloads=PHOTOS,
            batch=16,
            cores_per_worker=2,
            loaders={"name": "native", "processes": 1},
        ),
        {"loaders": {"name": "native", "processes": 0}},
    ),
    "one-sample": Plant(
        "a batch of one sample",
        "small_batch",
        "jax",
        cell("jax", batch=256),
        {"batch_per_worker": 1},
    ),
    "long-update": Plant(
        "AdamW of 2.8 million parameters after each sample",
        "update_bound",
        "pytorch",
        cell("pytorch", batch=128, **UPDATED),
        {"batch_per_worker": 1},
    ),
    "quota": Plant(
        "a quota of half a core",
        "throttled",
        "chainer",
        cell("chainer", batch=64),
        quota=0.5,
    ),
    "many-threads": Plant(
        "four threads on two cores",
        "oversubscribed_cores",
        "reference",
        cell("reference", batch=64, threads_per_worker=2),
        {"threads_per_worker": 4},
    ),
    "zero1-buckets": Plant(
        "ZeRO's buckets of a thousand values",
        "latency_bound",
        "deepspeed",
        cell("deepspeed", "zero1", 2, batch=16),
        {"options": {"deepspeed": {"bucket_values": 1000}}},
    ),
    "script-loader": Plant(
        "a script decodes its images between steps",
        "own_input",
        "own script",
        {},
        script=(f"python {SCRIPT} decode", f"python {SCRIPT} decoded"),
    ),
    "script-checkpoint": Plant(
        "a script saves a checkpoint after each update",
        "own_gap",
        "own script",
        {},
        script=(f"python {SCRIPT} save", f"python {SCRIPT} save-seldom"),
    ),
    "script-summary": Plant(
        "a script writes histograms after each update",
        "own_gap",
        "own script",
        {},
        script=(f"python {SCRIPT} summarise", f"python {SCRIPT} summarise-seldom"),
    ),
    "script-rank": Plant(
        "rank 1 of a script computes more than rank 0",
        "own_straggler",
        "own script",
        {},
        script=(
            f"torchrun --nproc-per-node 2 {SCRIPT} uneven",
            f"torchrun --nproc-per-node 2 {SCRIPT} even",
        ),
    ),
    "further-store": further("each sample waits 2 ms for its store", "store", "own_input"),
    "further-log": further("five lines are put on the disk after each update", "log", "own_gap"),
    "further-buckets": further("DDP buckets of 1 KiB", "buckets", "own_exchange", 2),
    "further-save-rank": further("rank 0 alone saves after each update", "save-rank", "own_straggler", 2),
    "further-files": further("a file is opened for each sample", "files", "own_input"),
    "further-metric": further("a metric is counted in Python", "metric", "own_gap"),
    "further-metrics": further("a hundred numbers are reduced one by one", "metrics", "own_exchange", 2),
    "further-uneven-batch": further("rank 1 gets four times the batch", "uneven-batch", "own_straggler", 2),
    "further-collate": further("batches are put together in Python", "collate", "own_input"),
    "further-collect": further("garbage is collected after each update", "collect", "own_garbage"),
    "further-buffers": further("8 MiB of buffers are sent before each step", "buffers", "own_exchange", 2, heavy=True),
    "further-store-rank": further("rank 1 alone waits for its store", "store-rank", "own_straggler", 2),
    "further-augment": further("each sample is turned sixty times", "augment", "own_input"),
    "further-norm": further("norms of all weights are read twenty times", "norm", "own_gap"),
    "further-twice": further("each gradient is reduced again", "twice", "own_exchange", 2, heavy=True),
    "further-sleep": further("the script sleeps 10 ms after each update", "sleep", "own_gap"),
    "heavy-metrics": further("a hundred numbers are reduced one by one", "metrics", "own_exchange", 2, heavy=True),
    "heavy-gather": further("objects are gathered in each step", "gather", "own_exchange", 2, heavy=True),
    "further-average": further("an average of weights is kept in Python", "average", "own_gap"),
    "further-save": further("each update is saved", "save", "own_checkpoint"),
    "further-save-other": further("every other update is saved", "save-other", "own_checkpoint"),
    "further-save-rank-again": further("rank 0 alone saves after each update", "save-rank", "own_straggler", 2),
    "paddle-buckets": Plant(
        "Paddle's buckets of 10 KiB",
        "latency_bound",
        "paddle",
        cell("paddle", "allreduce", 2, batch=16),
        {"options": {"paddle": {"bucket_mb": 0.01}}},
    ),
    "no-fusion": Plant(
        "Horovod sends each gradient alone",
        "latency_bound",
        "horovod_tensorflow",
        cell("horovod_tensorflow", "allreduce", 2, batch=16),
        {"options": {"horovod_tensorflow": {"fusion_mb": 0}}},
    ),
    "tensorflow-decoding": Plant(
        "JPEG images decoded between steps",
        "input_bound",
        "tensorflow",
        cell("tensorflow", workloads=PHOTOS, batch=32, loaders={"name": "native", "processes": 1}, cores_per_worker=2),
        {"loaders": {"name": "native", "processes": 0}},
    ),
    "jax-decoding": Plant(
        "JPEG images decoded between steps",
        "input_bound",
        "jax",
        cell("jax", workloads=PHOTOS, batch=32, loaders={"name": "cached", "processes": 0}),
        {"loaders": {"name": "native", "processes": 0}},
    ),
    "pytorch-server": Plant(
        "a server averages in place of the workers",
        "server_saturation",
        "pytorch",
        cell("pytorch", "allreduce", 2, batch=16, **UPDATED),
        {"strategies": "ps_sync", "servers": 1},
    ),
    "chainer-one-sample": Plant(
        "a batch of one sample",
        "small_batch",
        "chainer",
        cell("chainer", batch=256),
        {"batch_per_worker": 1},
    ),
    "mxnet-threads": Plant(
        "four threads on two cores",
        "oversubscribed_cores",
        "mxnet",
        cell("mxnet", batch=64, threads_per_worker=2),
        {"threads_per_worker": 4},
    ),
    "jax-windows": Plant(
        "convolutions by operations that a processor is slow at",
        "framework_overhead",
        "jax",
        cell("jax", batch=64, options={"jax": {"windows": "hand_written"}}),
        {"options": {"jax": {"windows": "lax"}}},
    ),
    "tensorflow-threads": Plant(
        "four threads on two cores",
        "oversubscribed_cores",
        "tensorflow",
        cell("tensorflow", batch=64, threads_per_worker=2),
        {"threads_per_worker": 4},
    ),
    "paddle-one-sample": Plant(
        "a batch of one sample",
        "small_batch",
        "paddle",
        cell("paddle", batch=256),
        {"batch_per_worker": 1},
    ),
    "mxnet-operators": Plant(
        "fifteen operators are a task of the engine",
        "framework_overhead",
        "mxnet",
        cell("mxnet", batch=2, options={"mxnet": {"bulk_nodes": 1000}}),
        {"options": {"mxnet": {"bulk_nodes": 15}}},
    ),
    "jax-slow-host": Plant(
        "one of two hosts has half a core",
        "straggler",
        "jax",
        cell("jax", "allreduce", 2, batch=64, workloads={"name": "cifar_cnn"}, **hosts(QUICK_LINK)),
        hosts({**QUICK_LINK, "cpu_share": {1: "50%"}}),
    ),
    "pytorch-updates": Plant(
        "each parameter is updated by itself",
        "update_bound",
        "pytorch",
        cell("pytorch", batch=32, **UPDATED, options={"pytorch": {"update": "fused"}}),
        {"options": {"pytorch": {"update": "default"}}},
    ),
}


def main() -> None:
    """Measure the plants that are named, or all, and add what was found to the table."""
    folder = Path(sys.argv[1])
    done = _rows()
    for name in sys.argv[2:] or PLANTS:
        if name in done and NOISE.name not in str(done[name]["other_rules"]).split():
            continue
        plant = PLANTS[name]
        row = _own_script(folder / name, plant) if plant.script else _trained(folder / name, plant)
        about = {"plant": name, "cause": plant.cause, "framework": plant.framework, "rule": plant.rule}
        done[name] = {**about, **row, "rules": _commit()}
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(done[each] for each in PLANTS if each in done)
        print(done[name], flush=True)


def _commit() -> str:
    """Return the commit of the rules that speak."""
    head = subprocess.run(
        [shutil.which("git") or "git", "rev-parse", "--short=8", "HEAD"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return head.stdout.strip()


def _rows() -> dict[str, dict[str, object]]:
    if not TABLE.is_file():
        return {}
    with TABLE.open(newline="") as file:
        return {row["plant"]: dict(row) for row in csv.DictReader(file)}


def _trained(folder: Path, plant: Plant) -> dict[str, object]:
    clean, planted = folder / "clean", folder / "planted"
    again = planted.is_dir()
    _run(clean, plant.clean, again=again)
    with _quota(plant.quota):
        _run(planted, {**plant.clean, **plant.planted}, again=again)
    if plant.net:
        link = ["--launcher", "emulated", "--bandwidth", str(SLOW_LINK["bandwidth"]), "--launches", "1"]
        net = [*PROGRAM, "net", "horovod-gloo", *link, "--sizes", "16KiB,64KiB,256KiB", "-o", str(planted)]
        subprocess.run(net, cwd=ROOT, check=False)
    found, twin = read_report(planted), read_report(clean)
    fired = _of_rule(found, plant.rule)
    rows = verify_folder(planted) if plant.quota is None and any(_changes(each) for each in _findings(found)) else []
    add_rows(rows)
    verified = next((each for each in rows if each.rule == plant.rule), None)
    return {
        **_judged(found, twin, plant.rule),
        **_numbers("predicted", fired.gain if fired else None),
        **_verified(verified),
        **_numbers("removed", _gain_of_twin(found, twin)),
        "load": f"{_load(found):.2g}",
    }


def _own_script(folder: Path, plant: Plant) -> dict[str, object]:
    assert plant.script
    for side, command in zip(("planted", "clean"), plant.script, strict=True):
        if not (folder / side).is_dir():
            attach = [*PROGRAM, "attach", "--lines", "-o", str(folder / side), "--", *command.split()]
            subprocess.run(attach, cwd=ROOT, env=_environment(folder), check=False)
    found, twin = read_report(folder / "planted"), read_report(folder / "clean")
    fired = _of_rule(found, plant.rule)
    rows = []
    if fired:
        advice = [*PROGRAM, "advise", str(folder / "planted"), "--verify", "--launches", "3", "--rule", plant.rule]
        subprocess.run([*advice, "--", *plant.script[1].split()], cwd=ROOT, env=_environment(folder), check=False)
        rows = read_verified(folder / "planted" / "advice" / plant.rule / "verified.csv")
    add_rows(rows)
    return {
        **_judged(found, twin, plant.rule),
        **_numbers("predicted", fired.gain if fired else None),
        **_verified(rows[0] if rows else None),
        "load": f"{rows[0].load:.2g}" if rows else "",
    }


def _verified(row: VerifiedAdvice | None) -> dict[str, object]:
    interval = row and Interval(row.measured, row.measured_low, row.measured_high)
    return _numbers("verified", interval)


def _environment(folder: Path) -> dict[str, str]:
    python = ready_interpreter("pytorch")
    assert python, "steptime env create pytorch makes it"
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OUT": str(folder), "OMP_NUM_THREADS": "1"}


def _run(folder: Path, content: dict[str, object], *, again: bool) -> None:
    """Run a study; ``again`` where other programs drowned its first launches: as many more are added to them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
    launches = 2 * LAUNCHES if again else LAUNCHES
    file.write_text(
        json.dumps({**BASE, **content, "name": folder.name, "launches": {"min": launches, "max": launches}})
    )
    subprocess.run([*PROGRAM, "run", str(file), "-o", str(folder)], cwd=ROOT, check=False)


@contextmanager
def _quota(cores: float | None) -> Iterator[None]:
    """Run what is started within, in a control group with so many cores."""
    if cores is None:
        yield
        return
    group = GROUP / "steptime-planted"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _findings(found: ReportedResults) -> Sequence[TrialFinding]:
    return found.diagnosis.findings


def _changes(finding: TrialFinding) -> bool:
    return bool(finding.overrides) and finding.gain.value is not None


def _of_rule(found: ReportedResults, rule: str) -> TrialFinding | None:
    return next((each for each in _findings(found) if each.rule == rule), None)


def _judged(found: ReportedResults, twin: ReportedResults, rule: str) -> dict[str, object]:
    """Return which rules spoke of the plant and of its twin."""
    names, silent = [[each.rule for each in _findings(results)] for results in (found, twin)]
    return {
        "fired": "yes" if rule in names else "no",
        "other_rules": " ".join(each for each in names if each != rule),
        "clean_silent": "no" if rule in silent else "yes",
        "clean_rules": " ".join(silent),
    }


def _gain_of_twin(found: ReportedResults, twin: ReportedResults) -> Interval | None:
    """Return samples per second of the twin over those of the plant."""
    launches = []
    for results in (found, twin):
        trial = next(iter(results.store.trials()))
        timed = [each for each in results.store.iter_records(TIMING, trial.id) if each.status == "ok"]
        times = estimate(timed, trial.strategy) if timed else None
        if times is None:
            return None
        launches.append((trial.global_batch, times.launches))
    (batch, slow), (other, fast) = launches
    ratio = compare(slow, fast)
    return Interval(*(other / batch * each for each in (ratio.ratio, ratio.low, ratio.high)))


def _numbers(name: str, interval: Interval | Interval[float | None] | None) -> dict[str, object]:
    values = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
    keys = (name, f"{name}_low", f"{name}_high")
    return {key: "" if value is None else f"{value:.4g}" for key, value in zip(keys, values, strict=True)}


def _load(found: ReportedResults) -> float:
    known = [value for each in found.summary.trials if (value := each.noise.get("foreign_cpu_cores")) is not None]
    return sum(known) / len(known) if known else 0.0


if __name__ == "__main__":
    main()
