"""The forms of text logs of trainings: which lines are entries, and which figures they have.

A row is data: patterns with named groups, in the units of ``UNITS``. A further log is a further row.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

NUMBER = r"\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?"
UNITS: Mapping[str, float] = {"ms": 1e-3}
"""Of groups whose figure is not in the unit that the name of the key in ``LogValues`` has."""

LogValues = Mapping[str, float]
"""Figures of an entry with the facts before it: ``step``, ``s``, ``ms``, ``samples_per_s``, ``worker_samples_per_s``,
``worker_tokens_per_s``, ``global_batch``, ``local_batch``, ``sequence``, ``step_tokens``, ``workers``, ``tflops``,
``at_s`` (the time of the line)."""
TIMERS = "time (ms) |"
Covering = Literal["one", "since", "several", "all"]
"""Of which steps an entry is the mean: of its own, of those since the entry before, of an unknown number, of all."""


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns in which ``<name>`` takes a number."""
    return tuple(re.compile(re.sub(r"(?<!P)<(\w+)>", lambda name: f"(?P<{name[1]}>{NUMBER})", text)) for text in texts)


@dataclass(frozen=True)
class StepWay:
    """A way to the time of a step."""

    needs: tuple[str, ...]
    seconds: Callable[[LogValues], float]
    source: str
    """The figures that it is made of."""


WAYS: Mapping[str, StepWay] = {
    "s": StepWay(("s",), lambda v: v["s"], "the time of a step, as printed"),
    "global_rate": StepWay(
        ("global_batch", "samples_per_s"),
        lambda v: v["global_batch"] / v["samples_per_s"],
        "samples of a step / samples per second",
    ),
    "worker_rate": StepWay(
        ("local_batch", "worker_samples_per_s"),
        lambda v: v["local_batch"] / v["worker_samples_per_s"],
        "samples of a worker / its samples per second",
    ),
    "worker_tokens": StepWay(
        ("global_batch", "sequence", "workers", "worker_tokens_per_s"),
        lambda v: v["global_batch"] * v["sequence"] / (v["workers"] * v["worker_tokens_per_s"]),
        "tokens of a step / (workers x tokens per second of a worker)",
    ),
    "tokens_of_step": StepWay(
        ("step_tokens", "workers", "worker_tokens_per_s"),
        lambda v: v["step_tokens"] / (v["workers"] * v["worker_tokens_per_s"]),
        "tokens of a step / (workers x tokens per second of a worker)",
    ),
    "lines": StepWay(("since_s", "steps"), lambda v: v["since_s"] / v["steps"], "times of the lines of two entries"),
}
"""By name, the one that needs least arithmetic first."""


@dataclass(frozen=True)
class LogForm:
    """A form of logs."""

    name: str
    about: str
    mark: str
    """What every entry has."""
    fields: tuple[re.Pattern[str], ...]
    """Of an entry; the first that is there counts for each group."""
    facts: tuple[re.Pattern[str], ...] = ()
    """Of other lines."""
    leaves_out: str | None = None
    """What a line has that looks like an entry and is none."""
    timers: tuple[re.Pattern[str], ...] = ()
    """Of lines with ``TIMERS``: milliseconds of a part of a step, of which the mean is a figure."""
    covers: Covering = "since"
    ways: tuple[str, ...] = tuple(WAYS)
    """How the time of a step is found, by names in ``WAYS``: the first that is possible."""
    notes: tuple[str, ...] = ()
    ambiguous: tuple[str, str] | None = None
    """A text that makes the entries mean something unknown, and the reason."""


_MEGATRON = LogForm(
    "megatron",
    "a log of Megatron-LM",
    "elapsed time per iteration",
    _patterns(
        r"iteration\s+<step>\s*/",
        r"elapsed time per iteration \(ms\):\s*<ms>",
        r"elapsed time per iteration \(s\):\s*<s>",
        r"global batch size:\s*<global_batch>",
        r"samples per second:\s*<samples_per_s>",
        r"(?:TFLOPs|throughput per GPU \(TFLOP/s/GPU\)):\s*<tflops>",
    ),
    _patterns(
        r"(?:^|\s)world_size \.+ <workers>",
        r"using world size: <workers>",
        r"(?:^|\s)global_batch_size \.+ <global_batch>",
        r"(?:^|\s)seq_length \.+ <sequence>",
    ),
)
_PIPELINE = LogForm(
    "deepspeed-pipeline",
    "a log of DeepSpeed's pipelines",
    "iter time (s):",
    _patterns(r"steps?: <step>", r"iter time \(s\): <s>", r"samples/sec: <samples_per_s>"),
    _patterns(r"train_batch_size \.+ <global_batch>", r"(?:^|\s|dist_)world_size(?: \.+ |=)<workers>"),
)
_DEEPSPEED = LogForm(
    "deepspeed",
    "a log of DeepSpeed",
    "SamplesPerSec=",
    _patterns(r"global_step=<step>", r"\] <step>/\d+, (?:Running\w*)?SamplesPerSec"),
    _patterns(r"train_batch_size \.+ <global_batch>", r"(?:^|\s|dist_)world_size(?: \.+ |=)<workers>"),
    timers=_patterns(
        r"\| (?:fwd|forward): <forward_s>",
        r"\| (?:bwd|backward): <backward_s>",
        r"\| (?:bwd|backward)_allreduce: <backward_allreduce_s>",
        r"\| step: <update_s>",
    ),
    ways=("lines",),
    notes=("SamplesPerSec of DeepSpeed leaves out micro-steps; steps are taken from the times of the lines",),
)
_TORCHTITAN = LogForm(
    "torchtitan",
    "a log of torchtitan",
    "tps:",
    _patterns(
        r"step:\s*<step>", r"tps:\s*<worker_tokens_per_s>", r"tflops:\s*<tflops>", r"\[rank(?P<printed_by>\d+)\]"
    ),
    _patterns(
        r"local batch size <local_batch>", r"global batch size <global_batch>", r"sequence length <sequence>",
        r"device mesh with \[[^\]]*\], \[(?P<mesh>\d[\d, ]*)\]", r"<step_tokens> tokens per train step",
        r"parallelism: (?P<degrees>pp=\d+, dp_replicate=\d+, dp_shard=\d+, cp=\d+, tp=\d+)",
    ),
    leaves_out="validate step:",
)  # fmt: skip
_NEMO = LogForm(
    "nemo",
    "a log of NeMo, a line for means of steps",
    "train_step_timing in s:",
    _patterns(
        r"global_step:\s*<step>", r"iteration <step>/", r"train_step_timing in s:\s*<s>",
        r"global_batch_size:\s*<global_batch>",
    ),
    _patterns(r"Starting with <workers> processes", r"MEMBER: \d+/<workers>"),
)  # fmt: skip
_NEMO_STEPS = LogForm(
    "nemo-steps",
    "a log of NeMo by its progress bar or DeltaTimingCallback",
    "train_step_timing in s=",
    _patterns(
        r"(?:global_step=|\bStep )<step>", r"train_step_timing in s=\s*<s>", r"global_batch_size=\s*<global_batch>"
    ),
    _NEMO.facts,
    covers="one",
)
_TORCHTUNE = LogForm(
    "torchtune",
    "a log of torchtune",
    "tokens_per_second_per_gpu",
    _patterns(r"Step <step> \|", r"tokens_per_second_per_gpu:<worker_tokens_per_s>"),
    covers="one",
)
_HOROVOD = LogForm(
    "horovod-synthetic",
    "output of Horovod's synthetic benchmark",
    " img/sec per ",
    _patterns(r"Iter #<step>: <worker_samples_per_s> img/sec per"),
    _patterns(r"Batch size: <local_batch>", r"Number of (?:GPU|CPU|device)s: <workers>"),
    covers="several",
    notes=("an iteration of the benchmark is the mean of several steps (10 unless --num-batches-per-iter was given)",),
)
_TF_CNN = LogForm(
    "tf-cnn-benchmarks",
    "output of tf_cnn_benchmarks",
    "images/sec: ",
    _patterns(r"^<step>\s+images/sec: <samples_per_s>"),
    _patterns(r"(?:Batch size:\s+)<global_batch> global", r"<local_batch> per device"),
    covers="all",
    ambiguous=("horovod", "under Horovod, its rates are of one worker and its batches of all"),
)
LOG_FORMS: Mapping[str, LogForm] = {
    form.name: form
    for form in (_MEGATRON, _PIPELINE, _DEEPSPEED, _TORCHTITAN, _NEMO, _NEMO_STEPS, _TORCHTUNE, _HOROVOD, _TF_CNN)
}
"""By name; of a file that several fit, the first counts."""
