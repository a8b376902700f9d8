"""Held-out points of emulated hosts: quiet cells of the forecast, and LeNet-5 as a prototype once measured it.

Of the prototype's three networks (``tests/simulate/emulated_table.py``) only LeNet-5 is one of the library's.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from held_out_points import HeldOutPoint, held_out_point

from steptime.fitting.fit import fit, fit_group
from steptime.fitting.observation import Deployment, GroupKey, Observation, observe
from steptime.fitting.profile import SCHEMA, Machine, NetLink, Profile
from steptime.predict.query import Query
from steptime.predict.targets import Target, targets
from steptime.results.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "accuracy"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "simulate"))

from campaign import Folders
from contestants import CONTESTANTS
from emulated_table import LINKS, MEASURED
from forecast_cells import situations_of
from quiet import all_quiet

_ALONE_MS = 6.5
"""A step of LeNet-5 of one worker, in the prototype's campaign."""
_TWO_CORES = Machine(cpu=None, cores=2, gpus=0)
_LENET5 = GroupKey(
    framework="pytorch",
    strategy="allreduce",
    workload="lenet5",
    input_shape=(1, 28, 28),
    classes=10,
    dataset=None,
    loader="synthetic",
    loader_processes=0,
    device="cpu",
    precision="fp32",
    threads=1,
    options=(),
)


def emulated_points(root: Path) -> Iterator[HeldOutPoint]:
    """Yield the points of a folder of ``benchmarks/accuracy/forecast.py`` whose launches were all quiet."""
    for name in CONTESTANTS:
        for situation in situations_of(root, name):
            yield from _points(Folders(root, name, situation))


def prototype_points() -> Iterator[HeldOutPoint]:
    """Yield three and four hosts of LeNet-5, from one worker, two hosts and their link, at each bandwidth."""
    for megabits, (start_ms, reached) in LINKS.items():
        steps = dict(zip((2, 3, 4), MEASURED["lenet5"][megabits], strict=True))
        rate = megabits * 1e6 / 8
        known = [_observed(1, _ALONE_MS, rate), _observed(2, steps[2], rate)]
        net = NetLink(
            framework="pytorch",
            back_end="gloo",
            operation="allreduce",
            launcher="emulated",
            workers=2,
            servers=0,
            between_hosts=True,
            nominal_rate=rate,
            delay_s=0.0,
            latency_s=start_ms * 1e-3 / 2,
            rate=reached * 1e6 / 8,
            alpha_s=None,
            worst_error=0.0,
        )
        group = fit_group(_LENET5, known, _TWO_CORES, [net])
        profile = Profile(
            format_version=SCHEMA, written_by="", results="", machine=_TWO_CORES, steps=0, groups=[group], net=[net]
        )
        for workers in (3, 4):
            point = held_out_point(
                profile,
                Target(_LENET5, group, group),
                Query(),
                workers,
                steps[workers] * 1e-3,
                source="prototype",
                kind="emulated",
                case=f"prototype-lenet5-{megabits}",
            )
            if point is not None:
                yield point


def _observed(workers: int, step_ms: float, rate: float) -> Observation:
    return Observation(
        trial=f"lenet5-{workers}",
        key=_LENET5 if workers > 1 else replace(_LENET5, strategy="single"),
        deployment=Deployment(workers, 64, hosts=workers, emulated=True, bandwidth=rate),
        steps_s=(step_ms * 1e-3,),
        step_count=100,
        token_buckets=workers > 1,
    )


def _points(folders: Folders) -> Iterator[HeldOutPoint]:
    if not (Store.exists(folders.known) and Store.exists(folders.held_out)):
        return
    known, held = Store.open(folders.known), Store.open(folders.held_out)
    if not all(all_quiet(known.launches(trial.id)) for trial in known.trials()):
        return
    profile = fit(known, observe(known))
    measured = {
        (each.key.strategy, each.deployment.workers): each
        for each in observe(held)
        if all_quiet(held.launches(each.trial))
    }
    for target in targets(profile, Query()):
        for (strategy, workers), each in measured.items():
            if strategy != target.key.strategy:
                continue
            seconds = sorted(each.steps_s)[len(each.steps_s) // 2]
            case = f"{target.key.framework}-{folders.situation.name}"
            point = held_out_point(
                profile, target, Query(), workers, seconds, source=target.key.framework, kind="emulated", case=case
            )
            if point is not None:
                yield point
