"""How many bytes of gradients a workload exchanges per step; also for workloads that are only known by their size."""

from collections.abc import Mapping

from steptime.workloads.table import LIBRARY

COST_ONLY: Mapping[str, int] = {
    "resnet20": 269_722,
    "vgg16_cifar": 14_728_266,
    "resnext50_32x4d": 25_028_904,
    "resnext101_32x8d": 88_791_336,
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
}
"""Trainable values of workloads that steptime cannot train: enough to know what travels, not what is computed."""

_FP32 = 4


def gradient_bytes(workload: str, value_bytes: int = _FP32) -> int | None:
    """Return the bytes of one worker's gradients, or None for a workload of unknown size."""
    if workload in LIBRARY:
        return LIBRARY[workload].published_parameters * value_bytes
    if workload in COST_ONLY:
        return COST_ONLY[workload] * value_bytes
    return None
