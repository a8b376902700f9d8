"""Held-out points of published scaling curves: their fit points as a profile, asked for their other points.

A curve takes part where its columns say what ``predict`` needs: a framework and strategy with a step graph, a workload
of the library, the hosts, and where hosts are crossed the bandwidth of their cards. Curves on real data without DALI
do not: no column says how long a batch takes to load, and some of them are limited by that.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path

from held_out_points import HeldOutPoint, held_out_point

from steptime.catalog.workloads.table import LIBRARY
from steptime.curves.curve import Point, ScalingCurve
from steptime.curves.table import read_curves
from steptime.fitting.fit import fit_group
from steptime.fitting.observation import Deployment, GroupKey, Observation
from steptime.fitting.profile import SCHEMA, Machine, Profile
from steptime.model.policies import Traffic
from steptime.predict.query import Query
from steptime.predict.targets import Target

_FRAMEWORKS = (
    (r"PyTorch.*(DDP|DistributedDataParallel)", "pytorch", {}),
    (r"PyTorch.*Horovod.*one all-reduce per tensor", "horovod_pytorch", {"fusion_mb": 0.0}),
    (r"MXNet.*Horovod", "horovod_mxnet", {}),
    (r"TensorFlow 1.15 \+ Horovod", "horovod_tensorflow", {}),
    (r"TensorFlow 2.3 \(MirroredStrategy\)", "tensorflow", {}),
)
_CORES = 64


def published_points(table: Path) -> Iterator[HeldOutPoint]:
    """Yield the held-out points of each curve whose columns allow a prediction."""
    for curve in read_curves(table):
        found = _key_of(curve)
        if found is None or curve.setup.batch_per_worker is None or not isfinite(curve.setup.host_size):
            continue
        known = [_observation(curve, point, found) for point in curve.fit]
        gpus = int(curve.setup.host_size)
        machine = Machine(cpu=None, cores=_CORES, gpus=gpus, gpu=curve.setup.accelerator)
        keys = dict.fromkeys(each.key for each in known)
        groups = [fit_group(key, known, machine, ()) for key in keys]
        profile = Profile(
            format_version=SCHEMA, written_by="", results=curve.name, machine=machine, steps=0, groups=groups, net=[]
        )
        group = next((each for each in groups if each.key == found), None)
        if group is None or not group.parameters:
            continue
        query = Query(
            workers_per_host=gpus, bandwidth=curve.setup.inter_host_rate, nics_per_host=curve.setup.cards_per_host
        )
        for point in curve.holdout:
            made = held_out_point(
                profile,
                Target(found, group, group),
                query,
                point.workers,
                point.step_time,
                source=curve.setup.source,
                kind="published",
                case=curve.name,
            )
            if made is not None:
                yield made


def _key_of(curve: ScalingCurve) -> GroupKey | None:
    setup = curve.setup
    named = next(((name, options) for words, name, options in _FRAMEWORKS if re.search(words, setup.framework)), None)
    if named is None or setup.workload not in LIBRARY or setup.strategy != "allreduce" or setup.data == "real":
        return None
    entry = LIBRARY[setup.workload]
    name, options = named
    return GroupKey(
        framework=name,
        strategy="allreduce",
        workload=setup.workload,
        input_shape=tuple(entry.input_shape),
        classes=entry.classes,
        dataset=None,
        loader="synthetic",
        loader_processes=0,
        device="cuda",
        precision="fp32" if setup.precision == "fp32" else "fp16",
        threads=1,
        options=tuple(sorted(options.items())),
    )


def _observation(curve: ScalingCurve, point: Point, key: GroupKey) -> Observation:
    setup, hosts = curve.setup, curve.hosts(point.workers)
    deployment = Deployment(
        workers=point.workers,
        batch=setup.batch_per_worker or 1,
        hosts=hosts,
        workers_per_host=int(min(point.workers, setup.host_size)),
        bandwidth=setup.inter_host_rate if hosts > 1 else None,
        nics_per_host=setup.cards_per_host or 1,
        traffic=Traffic("fp16" if setup.precision == "fp16" else "fp32"),
    )
    return Observation(
        trial=f"{curve.name}-{point.workers}",
        key=key if point.workers > 1 else replace(key, strategy="single"),
        deployment=deployment,
        steps_s=(point.step_time,),
        step_count=1,
    )
