"""The causes that ``planted.py`` plants one at a time, each with its clean twin, in real frameworks and scripts."""

from dataclasses import dataclass, field
from pathlib import Path

from verify import PHOTOS, ROOT, UPDATED, cell

HERE = Path(__file__).parent.relative_to(ROOT)
SCRIPT, FURTHER, LATER, FRAMEWORKS = (
    HERE / f"planted_{name}.py" for name in ("script", "further_script", "later_script", "frameworks_script")
)
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
    environment: str = "pytorch"
    """Of a script: the framework whose environment it runs in."""


def hosts(cluster: dict[str, object]) -> dict[str, object]:
    """Return the keys by which a study trains on emulated hosts."""
    return {"launcher": "emulated", "cluster": cluster}


def further(  # noqa: PLR0913 - what plants of a script differ in
    cause: str,
    name: str,
    rule: str,
    workers: int = 1,
    *,
    heavy: bool = False,
    script: Path = FURTHER,
    clean: str = "clean",
) -> Plant:
    """Return a plant of the second script of PyTorch, or of the third, of so many workers."""
    start = f"{'python' if workers == 1 else f'torchrun --nproc-per-node {workers}'} {script}"
    planted, twin = (f"{start} {each}{' heavy' if heavy else ''}" for each in (name, clean))
    return Plant(cause, rule, "own script", {}, script=(planted, twin))


def later(cause: str, name: str, rule: str, workers: int = 1, clean: str = "clean") -> Plant:
    """Return a plant of the third script of PyTorch, which computes more on several workers."""
    return further(cause, name, rule, workers, heavy=workers > 1, script=LATER, clean=clean)


def asked(framework: str, cause: str, name: str, rule: str) -> Plant:
    """Return a plant of the script of another framework."""
    planted, clean = (f"python {FRAMEWORKS} {framework} {each}" for each in (name, "clean"))
    return Plant(cause, rule, f"own script ({framework})", {}, script=(planted, clean), environment=framework)


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
    "paddle-small-buckets": Plant(
        "all of Paddle's buckets have 10 KiB",
        "latency_bound",
        "paddle",
        cell("paddle", "allreduce", 2, batch=16),
        {"options": {"paddle": {"bucket_mb": 0.01, "last_bucket_mb": 0.01}}},
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
    "further-store-rank": further("rank 1 alone waits for its store", "store-rank", "own_straggler", 2),
    "further-augment": further("each sample is turned sixty times", "augment", "own_input"),
    "further-norm": further("norms of all weights are read twenty times", "norm", "own_gap"),
    "further-twice": further("each gradient is reduced again", "twice", "own_exchange", 2, heavy=True),
    "further-sleep": further("the script sleeps 10 ms after each update", "sleep", "own_gap"),
    "heavy-metrics": further("a hundred numbers are reduced one by one", "metrics", "own_exchange", 2, heavy=True),
    "heavy-gather": further("objects are gathered in each step", "gather", "own_exchange", 2, heavy=True),
    "further-save": further("each update is saved", "save", "own_checkpoint"),
    "further-save-other": further("every other update is saved", "save-other", "own_checkpoint"),
    "paddle-buckets": Plant(
        "Paddle's buckets of 10 KiB (void: the last one of 1 MiB holds all)",
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
    "later-tokens": later("words of each sample are counted by a pattern", "tokens", "own_input"),
    "jax-histograms": asked("jax", "weights are counted in NumPy after each update", "histograms", "own_gap"),
    "chainer-saved": asked("chainer", "weights are saved after each update", "saved", "own_checkpoint"),
    "mxnet-histograms": asked("mxnet", "weights are counted in NumPy after each update", "histograms", "own_gap"),
    "later-shell": later("a shell is started after each update", "shell", "own_gap"),
    "later-micro": later("each of four micro-steps is exchanged", "micro", "own_exchange", 2, "micro-last"),
    "later-collect-batch": later("garbage is collected for each batch", "collect-batch", "own_garbage"),
    "later-unrolled-rank": later("rank 1 runs a layer more often", "unrolled-rank", "own_straggler", 2),
    "later-passes": later("the network is run twelve times more for metrics", "passes", "own_passes"),
    "later-rows": later("each sample is looked up without an index", "rows", "own_input"),
    "later-snapshot": later("all state is copied after each update", "snapshot", "own_gap"),
    "chainer-turned": asked("chainer", "samples are turned by a Fourier transform", "turned", "own_input"),
    "mxnet-turned": asked("mxnet", "samples are turned by a Fourier transform", "turned", "own_gap"),
    "jax-parsed": asked("jax", "samples are read from JSON", "parsed", "own_gap"),
    "later-state": later("rank 0 sends all state in 64 bits", "state", "own_exchange", 2),
    "later-packed": later("each sample is unpacked", "packed", "own_input"),
    "later-memory": later("the process's pages are added up after each update", "memory", "own_gap"),
    "later-drawn": later("each batch is drawn from half a million weights", "drawn", "own_input"),
    "tensorflow-parsed": asked("tensorflow", "samples are read from JSON", "parsed", "own_input"),
    "later-shown-rank": later("rank 0 alone formats all state", "shown-rank", "own_straggler", 2),
    "later-digest": later("all state is hashed after each update", "digest", "own_gap"),
    "later-tracker": later("each step waits for a tracker's server", "tracker", "own_gap"),
    "later-parsed": later("each sample is read from JSON", "parsed", "own_input"),
    "later-barriers": later("thirty barriers follow each update", "barriers", "own_exchange", 2),
    "later-pickled": later("all state is pickled after each update", "pickled", "own_gap"),
    "later-thresholds": later("a metric is counted at 400 thresholds", "thresholds", "own_gap"),
    "tensorflow-histograms": asked(
        "tensorflow", "weights are counted in NumPy after each update", "histograms", "own_gap"
    ),
    "mxnet-saved": asked("mxnet", "weights are saved after each update", "saved", "own_checkpoint"),
    "later-history": later("the history of all steps is written anew", "history", "own_gap"),
    "later-shown": later("all state is formatted after each update", "shown", "own_gap"),
    "later-passes-behind": later("likewise behind the update, as an evaluation", "passes-behind", "own_passes"),
    "further-average": further("an average of weights is kept in Python", "average", "own_gap"),
    "further-save-rank-again": further("rank 0 alone saves after each update", "save-rank", "own_straggler", 2),
    "further-buffers": further("8 MiB of buffers are sent before each step", "buffers", "own_exchange", 2, heavy=True),
}
