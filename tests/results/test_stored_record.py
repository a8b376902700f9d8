"""Every kind of record: its line has the keys that it always had, in their order, and is read back as it was."""

import json
from dataclasses import replace

import pytest
from launch_phases import launch_of
from simulated import ENDED, a_check, a_launch, a_training, a_trial, a_worker, an_epoch

from steptime.results.ablation_records import read_ablation
from steptime.results.accuracy_records import read_training
from steptime.results.equivalence_records import read_equivalence
from steptime.results.loader_records import LoaderLaunch, LoaderStretch, PageCache, WorkerLoading, read_loader
from steptime.results.net_records import NetLaunch, NetSetting, Visit, WorkerVisits, read_net
from steptime.results.records import read_launch


def a_loader_launch() -> LoaderLaunch:
    """Return a launch of one worker whose loader gave two batches."""
    stretch = LoaderStretch("first", 0.0, [0.1, 0.2], {"cpu_s": 0.1})
    workers = [WorkerLoading(0, "here", [stretch], 2, 0, {})]
    return LoaderLaunch(trial="t", launch=0, workers=workers, page_cache=PageCache(1.0, 0.0, 9), **ENDED)


def a_net_launch() -> NetLaunch:
    """Return a launch in which two workers reduced one message."""
    setting = NetSetting(
        back_end="gloo",
        framework="pytorch",
        strategy="allreduce",
        options={},
        device="cpu",
        operations=("allreduce",),
        sizes=(1024,),
        workers=2,
    )
    workers = [WorkerVisits(rank, "h", [Visit("allreduce", 1024, 0, [0.0, 0.1])], 1, 0, {}) for rank in range(2)]
    return NetLaunch(setting=setting, launch=0, commands=[], workers=workers, **ENDED)


KINDS = {
    "launch": (
        read_launch,
        lambda: a_launch(a_trial()),
        (
            "trial launch block status reason started_at wall_s commands environment noise flags workers "
            "stderr cluster isolation steptime environment_variables site lost_hosts machine schedule shared_import"
        ),
    ),
    "ablation": (
        read_ablation,
        lambda: launch_of(0, workers=1),
        (
            "trial launch status reason started_at wall_s environment noise flags workers stderr cluster "
            "isolation steptime schedule environment_variables site lost_hosts machine"
        ),
    ),
    "loader": (
        read_loader,
        a_loader_launch,
        (
            "trial launch status reason started_at wall_s environment noise flags workers page_cache stderr "
            "cluster isolation steptime schedule environment_variables site lost_hosts machine"
        ),
    ),
    "training": (
        read_training,
        lambda: a_training(a_trial()),
        (
            "trial launch seed status reason started_at wall_s environment noise steps_per_epoch resumed_at "
            "epochs facts flags stderr commands cluster isolation steptime environment_variables site lost_hosts "
            "machine"
        ),
    ),
    "net": (
        read_net,
        a_net_launch,
        (
            "launch status reason started_at wall_s commands environment noise flags alphas_s workers stderr "
            "cluster isolation steptime environment_variables site lost_hosts machine setting"
        ),
    ),
    "equivalence": (
        read_equivalence,
        lambda: a_check(options={}, environment_variables={}),
        (
            "framework framework_version strategy workload input_shape workers repeats steps parameters "
            "parameters_expected output_shape first_loss_error last_loss_error weight_error update_error "
            "update_rounding passed reason options environment_variables crashes learning_rate "
            "gradient_error gradient_rounding rounds optimizer trials unranked"
        ),
    ),
}
"""By kind: its reader, a record, and the keys of its line behind ``schema`` and ``kind``, as version 0.1 wrote them."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_of_a_line_keep_their_order(kind):
    """A file that an earlier version began is gone on with in the same order of keys."""
    _, record, keys = KINDS[kind]

    assert list(record().to_json()) == ["schema", "kind", *keys.split()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_is_read_back_as_the_record_that_wrote_it(kind):
    """What a record writes, its reader reads."""
    read, record, _ = KINDS[kind]

    assert read(json.dumps(record().to_json()).encode()) == record()


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_of_another_kind_is_refused(kind):
    """A reader takes lines of its own kind only, whatever their keys."""
    read, record, _ = KINDS[kind]

    with pytest.raises(ValueError, match="it is a record of 'other'"):
        read(json.dumps({**record().to_json(), "kind": "other"}).encode())


@pytest.mark.parametrize("late", ["a", "-1", "1.5", ""])
def test_updates_are_late_by_a_whole_number_of_others(late):
    """A key of staleness that is not a count damages the line, of a launch as of a training."""
    launch = a_launch(a_trial(), workers=[replace(a_worker([0.1]), staleness={late: 1})])
    training = a_training(a_trial(), epochs=[[an_epoch(staleness={late: 1})]])

    for read, record in ((read_launch, launch), (read_training, training)):
        with pytest.raises(ValueError, match="staleness"):
            read(json.dumps(record.to_json()).encode())
