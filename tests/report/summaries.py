"""Makes summaries with every kind of trial that a report must be able to show."""

from steptime.analysis.summary_form import (
    Efficiency,
    EquivalenceSummary,
    RankedTrial,
    StepTime,
    Summary,
    TrialSummary,
)
from steptime.results.consistency import SetAside, sentences
from steptime.results.json_form import IntervalOverLaunches

MACHINE = {
    "hostname": "lab-7",
    "cpu": "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz",
    "architecture": "x86_64",
    "cores": 4,
    "threads": 8,
    "machine_threads": 80,
    "quota_cores": None,
    "memory_bytes": 25769803776,
    "kernel": "6.8.0-45-generic",
    "os": "Ubuntu 24.04.1 LTS",
    "gpus": [],
    "gpu_driver": None,
    "python": "3.11.9",
    "steptime": "0.1.0",
}
NOISE = {
    "wall_s": 7.25,
    "load_1min_before": 0.41,
    "own_cpu_cores": 1.93,
    "foreign_cpu_cores": 0.03,
    "steal_share": 0.0004,
    "involuntary_switches": 812.0,
    "cpu_hz_before": 2.1e9,
    "cgroup_throttled_share": None,
    "memory_available_share": 0.71,
    "loopback_bytes": 184549376.0,
    "gpu_sm_hz_before": None,
}
VERSIONS = {"pytorch": "2.13.0", "tensorflow": "2.21.0", "mxnet": "1.9.1", "chainer": "7.8.1", "reference": "2.4.6"}
SHAPES = {"lenet5": ([1, 28, 28], 10, "digits"), "resnet50": ([3, 64, 64], 8, "photos")}


SET_ASIDE = [
    SetAside(file="trials/x/records.jsonl", line=4, reason="damaged", message="expected value at line 1 column 1"),
    *(
        SetAside(
            file="trials/x/records.jsonl", line=line, reason="repeated", message="it is the launch of line 1 again"
        )
        for line in (5, 6, 8)
    ),
]


def trial(  # noqa: PLR0913 - what a reader of a test wants to see differ
    framework="pytorch",
    strategy="allreduce",
    workload="lenet5",
    *,
    workers=2,
    batch=64,
    rate=1000.0,
    width=0.02,
    efficiency=None,
    **changes,
):
    """A trial that was measured with ``rate`` samples per second and a half-width of ``width``; None: not at all."""
    shape, classes, dataset = SHAPES[workload]
    time = None if rate is None else workers * batch / rate
    known = rate is not None and width is not None
    eff = Efficiency()
    if efficiency is not None:
        eff = Efficiency(
            value=efficiency,
            low=efficiency * 0.97,
            high=efficiency * 1.03,
            baseline_workers=1,
            baseline_strategy="single",
        )
    fields = {
        "id": f"{framework}-{strategy}-{workload}-w{workers}-b{batch}-{len(changes):08x}",
        "group": (
            f"{workload} ({'x'.join(map(str, shape))}), {dataset} dataset, framework's own loader, "
            f"{workers} worker{'s' * (workers > 1)}, batch {batch} per worker, fp32, cpu"
        ),
        "framework": framework,
        "framework_version": VERSIONS.get(framework),
        "strategy": strategy,
        "workload": workload,
        "input_shape": shape,
        "classes": classes,
        "dataset": dataset,
        "loader": "native",
        "device": "cpu",
        "precision": "fp32",
        "workers": workers,
        "servers": 1 if strategy.startswith("ps") else 0,
        "hosts": 1,
        "threads": 1,
        "batch_per_worker": batch,
        "options": {"bucket_mb": 25} if framework == "pytorch" else {},
        "varied_options": {},
        "launches": 3 if rate else 0,
        "failed_launches": 0,
        "steps": 412 if rate else 0,
        "step_time_s": StepTime(
            median=None if time is None else 0.98 * time,
            p90=None if time is None else 1.1 * time,
            p99=None if time is None else 1.5 * time,
            low=time * (1 - width) if known else None,
            high=time * (1 + width) if known else None,
            mean=time,
        ),
        "throughput_samples_per_s": IntervalOverLaunches(
            value=rate,
            low=rate * (1 - width) if known else None,
            high=rate * (1 + width) if known else None,
        ),
        "efficiency": eff,
        "status": "ok",
        "reason": None,
        "flags": [],
        "commands": [
            [
                f"/home/lab/.cache/steptime/environments/{framework}-1f3c/bin/python",
                "start.py",
                "job.json",
                "--rank",
                str(r),
            ]
            for r in range(workers)
        ],
        "environment": {
            "name": framework,
            "kind": "venv",
            "interpreter": f"/home/lab/.cache/steptime/environments/{framework}-1f3c/bin/python",
            "python": "3.11.9",
            "packages": {"numpy": "2.4.6", framework: VERSIONS.get(framework, "1.0")},
        },
        "noise": NOISE,
    }
    return TrialSummary(**{**fields, **changes})


def place(of, rank, ratio=1.0, *, width=0.03, tied=None, more=None):  # noqa: PLR0913 - as for trial
    """The place of trial ``of``; it is tied when the interval of its ratio holds 1."""
    low, high = (None, None) if width is None else (ratio * (1 - width), ratio * (1 + width))
    if rank == 1:
        low = high = 1.0
    holds = rank == 1 or (width is not None and low <= 1.0 <= high)
    return RankedTrial(
        group=of.group,
        rank=rank,
        trial=of.id,
        ratio_to_best=IntervalOverLaunches(value=ratio, low=low, high=high),
        tied_with_best=holds if tied is None else tied,
        launches_to_settle=more,
    )


def ranked(*trials, **options):
    """Places of trials, ranked by throughput within their groups."""
    places = []
    for group in dict.fromkeys(each.group for each in trials):
        own = sorted(
            (each for each in trials if each.group == group and each.throughput_samples_per_s.value),
            key=lambda each: -each.throughput_samples_per_s.value,
        )
        for rank, each in enumerate(own, 1):
            ratio = own[0].throughput_samples_per_s.value / each.throughput_samples_per_s.value
            places.append(place(each, rank, ratio, **options))
    return places


def check(framework="pytorch", strategy="allreduce", workload="lenet5", *, passed=True, **changes):
    """A check of the equivalence check."""
    fields = {
        "framework": framework,
        "framework_version": VERSIONS.get(framework, "1.0"),
        "strategy": strategy,
        "workload": workload,
        "workers": 2,
        "repeats": 3,
        "steps": 5,
        "parameters": 61706,
        "parameters_expected": 61706,
        "first_loss_error": 1.9e-07,
        "last_loss_error": 3.3e-06,
        "weight_error": 2.1e-07,
        "update_error": 1.4e-05,
        "update_rounding": 9.1e-06,
        "passed": passed,
        "reason": None if passed else "the weights of worker 1 are 0.34 away from the reference (at most 0.0001)",
    }
    return EquivalenceSummary(**{**fields, **changes})


def summary(trials=(), ranking=None, **changes):
    """A summary of ``trials``."""
    fields = {
        "study": "quickstart",
        "question": "Which framework trains LeNet-5 and ResNet-50 fastest on this machine?",
        "machine": MACHINE,
        "trials": list(trials),
        "ranking": ranked(*(each for each in trials if each.status == "ok")) if ranking is None else ranking,
        "equivalence": [],
        "skipped": [],
        "problems": [],
    }
    return Summary(**{**fields, **changes})


def quickstart():
    """The race with everything that happens in one: ties, a failure, an unequal trial, flags, a null, a lone trial."""
    crowded = ["more workers than cores"]
    rates = {
        "lenet5": {"pytorch": 21800.0, "mxnet": 21500.0, "tensorflow": 9310.0, "chainer": 14420.0},
        "resnet50": {"pytorch": 61.2, "tensorflow": 42.9, "mxnet": 38.8, "chainer": 21.13},
    }
    strategies = {"pytorch": "allreduce", "tensorflow": "allreduce", "mxnet": "ps_sync", "chainer": "allreduce"}
    shares = {"pytorch": 0.83, "tensorflow": 0.62, "mxnet": 0.71, "chainer": 0.452}
    trials = []
    for workload, found in rates.items():
        batch = 64 if workload == "lenet5" else 8
        for framework, rate in found.items():
            trials.append(
                trial(framework, "single", workload, workers=1, batch=batch, rate=rate).model_copy(
                    update={
                        "efficiency": Efficiency(
                            value=1.0, low=1.0, high=1.0, baseline_workers=1, baseline_strategy="single"
                        )
                    }
                )
            )
            if (workload, framework) == ("resnet50", "chainer"):
                trials.append(
                    trial(
                        framework,
                        strategies[framework],
                        workload,
                        batch=batch,
                        rate=None,
                        status="not_equivalent",
                        reason="the weights of worker 1 are 0.34 away from the reference (at most 0.0001)",
                    )
                )
            elif (workload, framework) == ("resnet50", "mxnet"):
                reason = "worker-1: RuntimeError: [enforce fail at alloc_cpu.cpp:114] cannot allocate 4294967296 bytes"
                trials.append(
                    trial(
                        framework,
                        strategies[framework],
                        workload,
                        batch=batch,
                        rate=None,
                        status="failed",
                        failed_launches=3,
                        reason=reason,
                    )
                )
            else:
                share = shares[framework]
                flags = (
                    crowded
                    if framework != "mxnet"
                    else [*crowded, "noisy: CPU used by other processes above 0.1 core (1 of 3 launches)"]
                )
                trials.append(
                    trial(
                        framework,
                        strategies[framework],
                        workload,
                        batch=batch,
                        rate=rate * 2 * share,
                        efficiency=share,
                        flags=flags,
                    )
                )
    ok = [each for each in trials if each.status == "ok"]
    return summary(
        trials,
        [
            each.model_copy(update={"launches_to_settle": 5 if each.tied_with_best and each.rank > 1 else None})
            for each in ranked(*ok)
        ],
        equivalence=[
            check("pytorch", "single", workers=1),
            check("pytorch"),
            check("tensorflow"),
            check("mxnet", "ps_sync"),
            check("mxnet", "ps_async", weight_error=None, update_error=None, last_loss_error=0.021),
            check("chainer"),
            check("chainer", "allreduce", "resnet50", passed=False, parameters=23525064, parameters_expected=23525064),
        ],
        skipped=["chainer ps_sync: chainer has no parameter servers (its strategies: single, allreduce)"],
        problems=sentences(SET_ASIDE),
        set_aside=SET_ASIDE,
    )


def many(count=40):
    """``count`` trials of one group, which differ in an option."""
    trials = [
        trial(
            "pytorch" if number % 2 else "mxnet",
            "allreduce" if number % 2 else "ps_sync",
            rate=20000.0 / (1 + 0.04 * number),
            efficiency=0.9,
            id=f"trial-{number:08x}",
            options={"bucket_mb": number},
            varied_options={"bucket_mb": number},
        )
        for number in range(count)
    ]
    return summary(trials)


def sweep(counts=(1, 2, 4, 8, 16, 32, 64), *, strong=False):
    """One framework and a second with a single worker only, over many numbers of workers."""
    trials = []
    for workers in counts:
        share = workers**-0.12
        trials.append(
            trial(
                strategy="single" if workers == 1 else "allreduce",
                workers=workers,
                batch=256 // workers if strong else 64,
                rate=1500.0 * workers * share,
                efficiency=None if strong else share,
            )
        )
    trials.append(trial("tensorflow", "single", workers=1, batch=256 if strong else 64, rate=1200.0, efficiency=1.0))
    return summary(trials)


def strong():
    """A sweep with the same global batch everywhere."""
    return sweep((1, 2, 4, 8), strong=True)
