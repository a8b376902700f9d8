"""Effects of the measured machine hold where its launches recorded them, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from world import KEY, TRUTH

from steptime.fitting.contention import step_model_of
from steptime.fitting.observation import Deployment, MachineEffects, combined, effects_of
from steptime.fitting.profile import LinkEstimate
from steptime.fitting.step_model import Contention, phases_of

BUCKETS = MachineEffects(token_buckets=True)
PREEMPTED = MachineEffects(preempted=True)


def _communicates(
    hosts: int,
    effects: MachineEffects,
    *,
    framework: str = "chainer",
    cores: int | None = None,
    device: str = "cpu",
) -> float:
    """Return the seconds that workers, one a host, wait for gradients; hosts with cores are not emulated."""
    options = (("fusion_mb", 64.0), ("cycle_ms", 1.0)) if framework == "horovod_pytorch" else ()
    key = replace(
        KEY, framework=framework, workload="resnet50", input_shape=(3, 64, 64), device=device, options=options
    )
    deployment = Deployment(workers=hosts, batch=8, hosts=hosts, emulated=cores is None, collectives="gloo")
    link = LinkEstimate(latency_s=0.0, rate=25e6, source="net", between_hosts=True)
    contention = Contention(1, cores) if cores else Contention(hosts, hosts)
    step_model = step_model_of(key, deployment, link, contention, effects=effects)
    phases = phases_of({name: np.full(1, value) for name, value in TRUTH.items()}, step_model)
    return float(phases["comm_exposed"][0])


def test_four_hosts_behind_token_buckets_wait_for_the_receivers_of_long_messages():
    assert _communicates(4, BUCKETS) > 1.1 * _communicates(4, MachineEffects())


def test_two_hosts_do_not():
    assert _communicates(2, BUCKETS) == pytest.approx(_communicates(2, MachineEffects()))


def test_three_hosts_behind_token_buckets_send_ahead():
    assert _communicates(3, BUCKETS) > 1.1 * _communicates(3, MachineEffects())


def test_other_hosts_than_those_that_were_measured_have_links_of_their_own():
    assert _communicates(3, BUCKETS, cores=1) == _communicates(3, MachineEffects(), cores=1)


def test_threads_that_took_the_core_from_computing_wait_for_it():
    horovod = {"framework": "horovod_pytorch"}

    assert _communicates(3, PREEMPTED, **horovod) > _communicates(3, MachineEffects(), **horovod)


@pytest.mark.parametrize("other", [{"cores": 4}, {"device": "cuda"}])
def test_threads_with_a_core_of_their_own_wait_for_none(other):
    horovod = {"framework": "horovod_pytorch", **other}

    assert _communicates(3, PREEMPTED, **horovod) == _communicates(3, MachineEffects(), **horovod)


@pytest.mark.parametrize(
    ("several", "alone", "preempted"),
    [(14.0, [0.1], True), (14.0, [13.5], False), (0.3, [], False), (None, [0.1], False)],
)
def test_computing_was_preempted_where_it_lost_its_core_once_a_step_more_than_alone(several, alone, preempted):
    assert effects_of(several, alone, token_buckets=False).preempted is preempted


def test_what_one_configuration_showed_holds_for_the_machine():
    assert combined([PREEMPTED, BUCKETS]) == MachineEffects(preempted=True, token_buckets=True)
