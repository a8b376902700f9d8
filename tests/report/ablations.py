"""Makes up what ablation runs and emulated hosts found, with every kind of thing that a report must be able to show."""

import math

from summaries import ranked, summary, trial

from steptime.analysis.ablation.form import (
    Account,
    Imbalance,
    Overlap,
    Phase,
    StepBreakdown,
    WorkerPhases,
    against_first,
)
from steptime.analysis.emulated_cluster import ClusterForm, HostForm, LinkForm, Spread
from steptime.results.json_form import Interval

PHASES = {
    "input_wait": 0.001,
    "h2d": 0.0,
    "forward": 0.010,
    "backward": 0.020,
    "comm_exposed": 0.005,
    "sync_wait": 0.002,
    "update": 0.003,
}
"""Seconds; a None stands for what nobody knows."""


def phase(value, width=0.1, how="derived"):
    """A phase of ``value`` seconds; without a width it has no interval."""
    if width is None:
        return Phase(value_s=value, low_s=None, high_s=None, how=how)
    return Phase(value_s=value, low_s=value - abs(value) * width, high_s=value + abs(value) * width, how=how)


def share(value, width=0.01):
    """A share with its interval."""
    known = width is not None
    return Interval(value=value, low=value - width if known else None, high=value + width if known else None)


def breakdown(phases=None, *, workers=2, width=0.1, overlap=True, rest=0.0005, **changes):
    """The breakdown of a step; where only one launch with one block was run, ``width`` is None."""
    alone = {"comm_exposed": 0.0, "sync_wait": 0.0} if workers == 1 else {}
    known = {**PHASES, **alone, **(phases or {})}
    found = {
        name: None if value is None else phase(value, width, "derived" if value else "direct")
        for name, value in known.items()
    }
    found["residual"] = phase(rest, width)
    step = math.fsum(each.value_s for each in found.values() if each)
    hidden = overlap and workers > 1
    fields = {
        "launches": 3,
        "step_s": phase(step, width, "direct"),
        "phases": found,
        "closure_error": abs(rest) / step,
        "native": {},
        "overlap": Overlap(ratio=0.6, communication_s=phase(0.0125, width), comm_hidden_s=phase(0.0075, width))
        if hidden
        else None,
        "imbalance": imbalance(workers) if workers > 1 else None,
        "input_s": None,
        "instrumentation": share(0.004),
        "against_timing": share(-0.02),
        "clock_uncertainty_s": 0.0,
    }
    return StepBreakdown(**{**fields, **changes})


def account(source, phase, native, by_ablation=None, *, agrees=True):
    """What a framework says of a phase; without a number of the ablation's there is nothing to compare it with."""
    away = None if by_ablation is None else native - by_ablation
    return Account(
        source=source,
        phase=phase,
        native_s=Interval(value=native, low=native * 0.9, high=native * 1.1),
        by_ablation_s=None
        if by_ablation is None
        else Interval(value=by_ablation, low=by_ablation * 0.9, high=by_ablation * 1.1),
        difference_s=None if away is None else Interval(value=away, low=away - 0.001, high=away + 0.001),
        agrees=agrees if by_ablation else None,
    )


ACCOUNTS = [
    account("DDP log", "forward", 0.011, 0.010),
    account("DDP log", "backward", 0.026, 0.020, agrees=False),
    account("DDP log", "comm_exposed + sync_wait", 0.003, 0.007, agrees=False),
    account("marks", "update", 0.003),
    account("marks", "input_wait", 0.001, 0.0011, agrees=None),
]


def imbalance(workers=2, blamed=1):
    """Workers of which one computes longer."""
    return Imbalance(
        factor=1.21,
        factor_low=1.17,
        factor_high=1.25,
        percent=21.0,
        persistent=0.17,
        transient=0.04,
        blamed_worker=blamed,
        workers=[
            WorkerPhases(
                rank=rank,
                host=f"h{rank}",
                compute_s=share(0.030 * (1.0 + 0.4 * (rank == blamed)), 0.001),
                heat_s=[0.030 * (1.0 + 0.4 * (rank == blamed)) + 0.0001 * (step % 7) for step in range(120)],
            )
            for rank in range(workers)
        ],
    )


def spread(value):
    """A quantity over launches."""
    return Spread(value=value, least=value * 0.9, most=value * 1.1)


def cluster(hosts=4, *, foreign=0.02):
    """Emulated hosts of which the last has half of its processor and an unlimited link."""
    made = [
        HostForm(
            name=f"h{index}",
            roles=[f"worker-{index}"],
            cores=[index % 2],
            nominal_bandwidth_bits_per_s=None if index == hosts - 1 else 1e8,
            cpu_quota_cores=0.5 if index == hosts - 1 else None,
            sent_bytes=spread(15e6),
            received_bytes=spread(14e6),
            throttled_s=spread(0.4) if index == hosts - 1 else None,
        )
        for index in range(hosts)
    ]
    return ClusterForm(
        kind="emulated",
        launches=3,
        delay_by=None,
        cpu_groups="cgroup v2",
        hosts=made,
        links=[
            LinkForm(
                source="h0",
                target=f"h{index}",
                alpha_s=spread(2e-4),
                bandwidth_bits_per_s=spread(95e6),
                message_bytes=1000000,
                nominal_bandwidth_bits_per_s=1e8,
                nominal_delay_s=0.0,
            )
            for index in range(1, hosts)
        ],
        foreign_cores=spread(foreign),
        foreign_load=foreign > 0.1,
    )


def launch_phases():
    """A race whose trials were broken down: one knows all, one nothing, one is asynchronous, one ran once."""
    one, nothing = {"workers": 1}, {**dict.fromkeys(PHASES), "h2d": 0.0}
    trials = [
        trial("pytorch", "single", rate=1600.0, breakdown=breakdown(**one), workers=1),
        trial("mxnet", "single", rate=1400.0, breakdown=breakdown({"forward": 0.015}, **one), workers=1),
        trial(rate=3000.0, breakdown=breakdown(accounts=ACCOUNTS)),
        trial(
            "mxnet",
            "ps_sync",
            rate=2500.0,
            breakdown=breakdown({"comm_exposed": 0.015}, imbalance=imbalance(blamed=None)),
        ),
        trial("mxnet", "ps_async", rate=2400.0, breakdown=breakdown({"sync_wait": 0.0, "comm_exposed": -0.001})),
        trial("chainer", rate=2000.0, breakdown=breakdown({"forward": 0.04, "h2d": 0.0}, width=None)),
        trial("tensorflow", rate=1500.0, breakdown=unknown(nothing)),
        trial("reference", rate=1000.0),
    ]
    places = ranked(*trials)
    own = {each.id: each.breakdown for each in trials}
    return summary(trials, places, gaps=against_first((each.group, each.trial, own[each.trial]) for each in places))


def unknown(nothing):
    """What is left where a framework has no ablation stages at all."""
    flags = ["noisy: CPU used by other processes above 0.1 core (2 of 3 launches)"]
    return breakdown(
        nothing, rest=0.06, overlap=False, imbalance=None, instrumentation=None, closure_error=1.0, flags=flags
    )


def emulated(**changes):
    """Two trials on emulated hosts."""
    return summary(
        [
            trial(workers=4, hosts=4, cluster=cluster(**changes), breakdown=breakdown(workers=4)),
            trial(
                "horovod_pytorch", workers=4, hosts=4, rate=900.0, cluster=cluster(2), breakdown=breakdown(workers=4)
            ),
        ]
    )
