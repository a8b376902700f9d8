"""Real training with one cause planted: the breakdown must name it, and say how much it costs.

Each planted share is found again within a tenth of its true value, or within the interval that is reported with it.
Such an interval misses the truth once in twenty times, and there are a dozen claims here: one that fails is measured
anew from its start, and has failed if it fails again. On a machine that others keep busy, as the launches themselves
have noted, nothing is claimed (``conftest.py``).
"""

from pathlib import Path

import pytest
from plants import Plant, breakdown_of, two_hosts

from steptime.analysis.ablation.form import Phase, StepBreakdown

pytestmark = [pytest.mark.alone, pytest.mark.flaky(reruns=1)]

LENET5_BYTES = 4 * 61_706
PAUSE = {"cause": "pauses", "every": 4, "seconds": 0.08}
LOADER = {"cause": "slow loader", "seconds": 0.03}
UPDATE = {"cause": "long update", "seconds": 0.03}


def agrees(phase: Phase | None, truth: float) -> bool:
    """Say whether a phase is within a tenth of the truth, or the truth within its interval."""
    assert phase is not None
    assert phase.low_s is not None
    assert phase.high_s is not None
    return abs(phase.value_s - truth) <= 0.1 * truth or phase.low_s <= truth <= phase.high_s


def alike(one: Phase, other: Phase) -> bool:
    """Say whether two measured phases are within a tenth of each other, or their intervals overlap."""
    apart = abs(one.value_s - other.value_s) > 0.1 * min(one.value_s, other.value_s)
    return not apart or (one.low_s <= other.high_s and other.low_s <= one.high_s)


def largest(found: StepBreakdown) -> str:
    """The phase that takes longest, of those that are not computation."""
    known = {name: phase.value_s for name, phase in found.phases.items() if phase}
    return max(("input_wait", "comm_exposed", "sync_wait", "update"), key=lambda name: known[name])


def healthy(folder: Path) -> list[Plant]:
    """One worker with nothing planted."""
    return [breakdown_of(folder, "lenet5", batch=64)]


def links(folder: Path) -> list[Plant]:
    """Two hosts on a link, and on one of a tenth of its bandwidth."""
    return [
        breakdown_of(folder / f"{rate:g}", "lenet5", batch=64, workers=2, cluster=two_hosts(bandwidth_bits_per_s=rate))
        for rate in (2e8, 2e7)
    ]


def slow_host(folder: Path) -> list[Plant]:
    """Two hosts, of which the second has half its core."""
    cluster = two_hosts(cpu_shares={1: 0.5})
    return [breakdown_of(folder, "cifar_cnn", batch=64, workers=2, cluster=cluster, seconds=8.0)]


def pauses(folder: Path) -> list[Plant]:
    """Two workers of one host, of which each pauses in one step of every four."""
    return [breakdown_of(folder, "lenet5", batch=64, workers=2, cause=PAUSE, seconds=12.0)]


def slow_loader(folder: Path) -> list[Plant]:
    """One worker whose loader sleeps."""
    return [breakdown_of(folder, "lenet5", batch=64, cause=LOADER)]


def long_update(folder: Path) -> list[Plant]:
    """One worker whose update takes long."""
    return [breakdown_of(folder, "lenet5", batch=64, cause=UPDATE)]


def buckets(folder: Path) -> list[Plant]:
    """One large bucket, and many small ones."""
    cluster = two_hosts(bandwidth_bits_per_s=5e7)
    return [
        breakdown_of(folder / f"{size:g}", "cifar_cnn", batch=64, workers=2, cluster=cluster, bucket_mb=size)
        for size in (25.0, 0.1)
    ]


def test_a_link_cut_to_a_tenth_shows_as_communication(measured):
    _, cut = measured(links)
    assert largest(cut.breakdown) == "comm_exposed"
    # Two workers in a ring: each sends half of the gradients twice, in the one bucket that is full when all is done.
    assert agrees(cut.breakdown.phases["comm_exposed"], LENET5_BYTES / cut.bandwidth_bytes_per_s())


def test_a_link_cut_to_a_tenth_leaves_the_computation_alone(measured):
    whole, cut = measured(links)
    for name in ("forward", "backward"):
        assert alike(cut.breakdown.phases[name], whole.breakdown.phases[name])


def test_a_host_at_half_speed_is_blamed_and_always_the_same(measured):
    found = measured(slow_host)[0].breakdown.imbalance
    assert found.blamed_worker == 1
    assert found.persistent > 3 * found.transient


def test_what_others_wait_for_a_host_at_half_speed_is_half_of_what_it_takes_longer(measured):
    found = measured(slow_host)[0].breakdown
    quick, slow = (worker.compute_s.value for worker in found.imbalance.workers)
    assert slow / quick == pytest.approx(2.0, rel=0.1)
    assert agrees(found.phases["sync_wait"], (slow - quick) / 2)


def test_pauses_at_random_are_transient_and_nobodys_fault(measured):
    found = measured(pauses)[0].breakdown.imbalance
    assert found.blamed_worker is None
    assert found.transient > 3 * found.persistent


def test_what_others_wait_for_pauses_is_what_their_chance_says(measured):
    found = measured(pauses)[0]
    # Of two workers one pauses alone with the chance 2 p (1 - p), and the mean worker waits half of it.
    chance = 1 / PAUSE["every"]
    assert agrees(found.breakdown.phases["sync_wait"], found.planted_s() * chance * (1.0 - chance))


@pytest.mark.parametrize(("plant", "phase"), [(slow_loader, "input_wait"), (long_update, "update")])
def test_what_takes_longer_on_one_worker_shows_in_its_phase(measured, plant, phase):
    (plain,), (found,) = measured(healthy), measured(plant)
    assert largest(found.breakdown) == phase
    assert agrees(found.breakdown.phases[phase], found.planted_s() + plain.breakdown.phases[phase].value_s)


def test_one_large_bucket_is_covered_less_than_many_small_ones(measured):
    large, small = (found.breakdown.overlap.ratio for found in measured(buckets))
    assert small > large + 0.1


@pytest.mark.parametrize("plant", [healthy, links, slow_host, pauses])
def test_phases_close_within_two_percent(measured, plant):
    for found in measured(plant):
        assert found.breakdown.closure_error <= 0.02 or agrees(found.breakdown.phases["residual"], 0.0)
