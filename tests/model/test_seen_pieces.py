"""Pieces that frameworks were seen to make of workloads of the library, by their own functions.

Buckets: torch 2.13, single process, hook on DistributedDataParallel, second step, images of the sizes below.
Groups: the grouping of torch's modules in the adapter of pytorch. Packs: ``group_by_size`` of TensorFlow 2.21.
"""

import pytest

from steptime.catalog.workloads.table import build_workload
from steptime.model.compute import work_of
from steptime.model.policies import step_graph
from steptime.worker.communication import PolicyContext

IMAGES = {
    "resnet50": (64, 64),
    "resnet152": (64, 64),
    "googlenet": (64, 64),
    "alexnet": (67, 67),
    "inception_v3": (75, 75),
    "vgg16": (32, 32),
}
BUCKETS = {
    ("lenet5", 25): [246824],
    ("autoencoder", 25): [3139136, 8210120],
    ("autoencoder", 5): [5645136, 5704120],
    ("cifar_cnn", 25): [340392],
    ("resnet50", 25): [8196000, 31502336, 26255360, 26550272, 9724160],
    ("resnet50", 5): [
        *(8196000, 13651968, 8409088, 9441280, 12603392, 13651968, 5519360, 5519360, 5525504, 6830080, 6574080),
        *(5272576, 1033472),
    ],
    ("resnet152", 25): [
        *(8196000, 31502336, 26255360, 27863040, 26812416, 26812416, 26812416, 26812416, 26556416, 13148416),
    ],
    ("googlenet", 25): [4100000, 22399616],
    ("googlenet", 5): [7566624, 5837312, 5278336, 5334016, 2483328],
    ("alexnet", 25): [16388000, 67125248, 14089472],
    ("alexnet", 5): [16388000, 67125248, 6569984, 6195200, 1324288],
    ("inception_v3", 25): [8196000, 27064320, 26873344, 29239808, 3964800],
    ("vgg16", 25): [16388000, 67125248, 27281408, 28317696, 11664640],
    ("vgg16", 5): [
        *(16388000, 67125248, 8404992, 9437184, 9439232, 9439232, 9439232, 9439232, 7081984, 4582656),
    ],
}
GROUPS = {
    "lenet5": 1,
    "mlp": 3,
    "resnet50": 11,
    "resnet152": 42,
    "googlenet": 5,
    "alexnet": 4,
    "inception_v3": 9,
    "vgg16": 10,
}
PACKS = {"mlp": 3, "resnet50": 19, "googlenet": 6, "alexnet": 5}


def _plan(workload, framework, strategy, image=None, **options):
    work = work_of(build_workload(workload, image=image))
    return step_graph(work, framework, strategy, PolicyContext(options=options)).plan


@pytest.mark.parametrize(("workload", "size"), BUCKETS)
def test_buckets(workload, size):
    plan = _plan(workload, "pytorch", "allreduce", IMAGES.get(workload), bucket_mb=float(size))

    assert [message.bytes for message in plan.messages] == BUCKETS[workload, size]


@pytest.mark.parametrize("workload", GROUPS)
def test_groups(workload):
    assert len(_plan(workload, "pytorch", "fsdp").gathers) == GROUPS[workload]


@pytest.mark.parametrize("workload", PACKS)
def test_packs(workload):
    assert len(_plan(workload, "tensorflow", "allreduce", pack_mb=4.0).messages) == PACKS[workload]
